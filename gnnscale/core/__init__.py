"""What all packages use: stages, errors, files, progress, the machine.

A name is imported when it is first used: a command that only asks has no NumPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnnscale.core.arrays import *  # noqa: F403
    from gnnscale.core.errors import *  # noqa: F403
    from gnnscale.core.files import *  # noqa: F403
    from gnnscale.core.hardware import *  # noqa: F403
    from gnnscale.core.metrics import *  # noqa: F403
    from gnnscale.core.prefetch import *  # noqa: F403
    from gnnscale.core.progress import *  # noqa: F403
    from gnnscale.core.python_process import *  # noqa: F403
    from gnnscale.core.records import *  # noqa: F403
    from gnnscale.core.stages import *  # noqa: F403

_NAMES = {
    "arrays": "Array BoolArray Float32Array Float64Array Int16Array Int32Array Int64Array IntArray "
    "StructArray UInt32Array UInt64Array UInt8Array",
    "errors": "ConfigError GraphError MAX_COUNT MAX_SEED UserError check_choice check_range "
    "explain nearest one_line printable shown",
    "files": "check_private unfinished_folder write_atomically",
    "hardware": "cache_bytes find_machine find_memory home installed let_idle_threads_sleep "
    "multiplies_bfloat16 torchrun_rank usable_cores",
    "metrics": "QUALITY better mteps",
    "prefetch": "Pipeline",
    "progress": "track",
    "python_process": "python_command",
    "records": "Count Positive decode",
    "stages": "Access SPAN STAGES StageTimes Traffic",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gnnscale.core' has no attribute {name!r}")
    value = getattr(import_module(f"gnnscale.core.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
