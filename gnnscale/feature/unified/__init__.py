"""Memory of the host that processes and their GPUs read and write (PyTorch-Direct, section 4)."""

from gnnscale.feature.unified.gpu_side import CudaSide, GpuSide, HostSide
from gnnscale.feature.unified.segment import SharedSegment
