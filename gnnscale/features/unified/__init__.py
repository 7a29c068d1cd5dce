"""Unified memory: host memory that processes and their GPUs access (PyTorch-Direct, section 4)."""

from gnnscale.features.unified.device import UnifiedDevice, unified_device
from gnnscale.features.unified.gpu_side import CudaSide, GpuSide, HostSide
from gnnscale.features.unified.placement import Output, Placement, place
from gnnscale.features.unified.segment import SharedSegment
from gnnscale.features.unified.tensor import (
    UnifiedTensor,
    is_unified,
    mem_advise,
    set_propagated_to_cuda,
)
