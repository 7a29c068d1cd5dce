"""What all packages use: stages, errors, files, progress, the machine."""

from gnnscale.core.arrays import (
    Array,
    BoolArray,
    Float32Array,
    Float64Array,
    Int16Array,
    Int32Array,
    Int64Array,
    IntArray,
    StructArray,
    UInt8Array,
    UInt32Array,
    UInt64Array,
)
from gnnscale.core.errors import (
    MAX_COUNT,
    MAX_SEED,
    ConfigError,
    GraphError,
    UserError,
    check_choice,
    check_range,
    explain,
    nearest,
    one_line,
    printable,
    shown,
)
from gnnscale.core.files import check_private, unfinished_folder, write_atomically
from gnnscale.core.hardware import (
    cache_bytes,
    find_machine,
    find_memory,
    home,
    installed,
    let_idle_threads_sleep,
    multiplies_bfloat16,
    python_command,
    torchrun_rank,
    usable_cores,
)
from gnnscale.core.metrics import QUALITY, better, mteps
from gnnscale.core.prefetch import Pipeline
from gnnscale.core.progress import track
from gnnscale.core.records import Count, Positive, decode
from gnnscale.core.stages import SPAN, STAGES, Access, StageTimes, Traffic
