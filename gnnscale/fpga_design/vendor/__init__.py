"""Comparison of the vendor's build reports with the estimates."""

from gnnscale.fpga_design.vendor.compare import Comparison, Figure, compare
