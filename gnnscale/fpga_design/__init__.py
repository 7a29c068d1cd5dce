"""Design generator: a build directory for Vitis from a model and a board (HitGNN, section IV)."""

from gnnscale.fpga_design.design import GenerateConfig, GeneratedDesign
from gnnscale.fpga_design.generate import DesignPackage, generate
