"""What a design of the FPGA kernels takes of a die: a model, process by process."""

from gnnscale.plan.resources.design import DesignSize
from gnnscale.plan.resources.die import Die, Fit, fit
from gnnscale.plan.resources.processes import Processes
from gnnscale.plan.resources.quantities import Resources, total
from gnnscale.plan.resources.tool import VITIS_HLS, Tool
