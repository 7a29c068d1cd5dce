"""Training on a platform, predicted: of graphs that are here, and of published ones."""

from gnnscale.plan.simulator.records import Scaling, Simulated
from gnnscale.plan.simulator.simulate import SimulateConfig, simulate
