"""Design-space exploration: n and m of the compute units of an FPGA card (HitGNN, section VI)."""

from gnnscale.fpga_design.dse.explore import MODES, Exploration, explore
from gnnscale.fpga_design.dse.goal import Goal, Point, make_goal
