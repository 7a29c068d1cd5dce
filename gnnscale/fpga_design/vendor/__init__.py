"""The vendor's own reports of a build, beside what was estimated."""

from gnnscale.fpga_design.vendor.compare import Comparison, Figure, compare
