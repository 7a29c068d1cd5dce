"""Foundation of all packages; names are imported on first use, so that help needs no NumPy."""

from typing import TYPE_CHECKING

from gnnscale.core.lazy import import_dgl, lazy_names, pyarrow

# For type checkers; at runtime lazy_names resolves the names below.
if TYPE_CHECKING:
    from gnnscale.core.errors import *  # noqa: F403
    from gnnscale.core.files import *  # noqa: F403
    from gnnscale.core.gpu import *  # noqa: F403
    from gnnscale.core.hardware import *  # noqa: F403
    from gnnscale.core.locks import *  # noqa: F403
    from gnnscale.core.memory import *  # noqa: F403
    from gnnscale.core.metrics import *  # noqa: F403
    from gnnscale.core.pipeline import *  # noqa: F403
    from gnnscale.core.process import *  # noqa: F403
    from gnnscale.core.progress import *  # noqa: F403
    from gnnscale.core.shared_memory import *  # noqa: F403
    from gnnscale.core.stages import *  # noqa: F403
    from gnnscale.core.types import *  # noqa: F403

__getattr__ = lazy_names(
    __name__,
    {
        "gnnscale.core.errors": (
            "ConfigError GraphError MAX_COUNT MAX_SEED UserError brief check_bank check_choice "
            "check_label check_range check_word explain listed_numbers one_line printable "
            "suggestion"
        ),
        "gnnscale.core.files": "check_private unfinished_folder whole_file write_atomically",
        "gnnscale.core.gpu": "Gpu GpuMeter GpuUse Gpus",
        "gnnscale.core.hardware": (
            "Machine busy_seconds cache_bytes find_machine home installed leads_machine "
            "let_idle_threads_sleep multiplies_bfloat16 restarting_run torchrun_rank "
            "usable_cores"
        ),
        "gnnscale.core.locks": "KnownFolder RESTART_WAIT_S sole_maker sole_writer",
        "gnnscale.core.memory": "KillCounts address_space_problem address_space_reason read_memory",
        "gnnscale.core.metrics": (
            "ClassCounts QUALITY better check_metric count_classes find_metric mteps note_child "
            "nvtps peak_rss_bytes watch_peak"
        ),
        "gnnscale.core.pipeline": "Pipeline StageGroup",
        "gnnscale.core.process": (
            "has_ended own_process preserved_defaults process_age_s python_command "
            "standard_arithmetic standard_numpy_errors"
        ),
        "gnnscale.core.progress": "track",
        "gnnscale.core.shared_memory": "SharedMemory shared_memory_of",
        "gnnscale.core.stages": "Access NO_ACCESS NO_TRAFFIC SPAN STAGES StageTimes Traffic",
        "gnnscale.core.types": (
            "Array BoolArray Count Float32Array Float64Array Int16Array Int32Array Int64Array "
            "IntArray Positive Seconds StructArray UInt32Array UInt64Array UInt8Array decode"
        ),
    },
)
