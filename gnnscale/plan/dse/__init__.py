"""Design-space exploration: which n and m an FPGA card gets (HitGNN, section VI)."""

from gnnscale.plan.dse.explore import MODES, Exploration, explore
from gnnscale.plan.dse.goal import Goal, goal_of
from gnnscale.plan.dse.points import Point
