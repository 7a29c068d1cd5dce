"""Resource model of the FPGA kernels, process by process."""

from gnnscale.fpga_design.resources.design import VITIS_HLS, DesignSize, Tool
from gnnscale.fpga_design.resources.processes import Fit, Processes, fit
from gnnscale.planner.fpga_board import Die, Resources, total
