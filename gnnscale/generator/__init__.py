"""From a model and a board to a directory for Vitis (HitGNN, section IV)."""

from gnnscale.generator.config import GenerateConfig
from gnnscale.generator.design import GeneratedDesign
from gnnscale.generator.generate import Generated, generate
