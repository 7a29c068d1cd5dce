"""Memory of the host that processes and their GPUs read and write (PyTorch-Direct, section 4)."""

from gnnscale.feature.unified.device import UnifiedDevice, unified_device
from gnnscale.feature.unified.gpu_side import CudaSide, GpuSide, HostSide
from gnnscale.feature.unified.segment import SharedSegment
from gnnscale.feature.unified.table3 import Output, Placement, place
from gnnscale.feature.unified.tensor import (
    UnifiedTensor,
    is_unified,
    mem_advise,
    set_propagated_to_cuda,
)
