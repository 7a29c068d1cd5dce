"""Training on a platform, predicted: of graphs that are here, and of published ones."""

from gnnscale.planner.simulator.hyscale import ScalingCurve, SimulatedRun
from gnnscale.planner.simulator.simulate import SimulateConfig, simulate
