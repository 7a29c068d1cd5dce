"""From a model and a board to a directory for Vitis (HitGNN, section IV)."""

from gnnscale.fpga_design.design import GenerateConfig, GeneratedDesign
from gnnscale.fpga_design.generate import DesignPackage, generate
