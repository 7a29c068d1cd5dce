"""Device plans, the performance model, and platforms: how a run's work is divided among devices."""

from gnnscale.planner.cuda_spec import CPU_HINT, CardRates, Cuda, find_gpu, load_or_measure_rates
from gnnscale.planner.device_plan import (
    BY_DEVICE,
    MAX_THREADS,
    PREFETCH,
    SAMPLED_IN_TURN,
    DevicePlan,
    DevicePlanConfig,
    DeviceShare,
    Threads,
    apportion,
)
from gnnscale.planner.device_spec import (
    ROW_WORDS,
    Accelerator,
    Cpu,
    Device,
    Emulated,
    Fpga,
    owns_steps,
    process_group_backend,
    shared_collective,
)
from gnnscale.planner.fpga_board import Board, Die, Resources, board
from gnnscale.planner.registry import custom_kinds, register_device
