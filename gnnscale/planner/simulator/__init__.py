"""Simulators of training on a platform, for graph stores and for published graphs."""

from gnnscale.planner.simulator.hyscale import ScalingCurve, SimulatedRun
from gnnscale.planner.simulator.simulate import SimulateConfig, simulate
