"""Design-space exploration: which n and m an FPGA card gets (HitGNN, section VI)."""

from gnnscale.fpga_design.dse.explore import MODES, Exploration, explore
from gnnscale.fpga_design.dse.goal import Goal, Point, goal_of
