"""The vendor's own reports of a build, beside what was estimated."""

from gnnscale.generator.vendor.compare import Comparison, Figure, compare
