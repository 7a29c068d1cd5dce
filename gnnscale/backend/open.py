"""From a device of a plan to the backend that drives it."""

from __future__ import annotations

from gnnscale.backend.base import Backend
from gnnscale.backend.cpu import CpuBackend
from gnnscale.backend.emulated import EmulatedBackend
from gnnscale.backend.loading import FeatureLoader
from gnnscale.graph import Graph
from gnnscale.model import GNN
from gnnscale.plan import Device, Emulated
from gnnscale.sampler import Sampler

__all__ = ["open_backend"]


def open_backend(
    device: Device, graph: Graph, model: GNN, sampler: Sampler, loader: FeatureLoader
) -> Backend:
    """Return the backend of ``device``.

    Raises:
        DeviceMemoryError: the model alone is larger than the device's memory.
    """
    if isinstance(device, Emulated):
        return EmulatedBackend(device, graph, model, sampler, loader)
    return CpuBackend(device, graph, model, sampler, loader)
