"""Cores, memory, processor features and software of this machine, and torchrun's environment."""

import importlib.util
import os
import platform
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from gnnscale.core.errors import ConfigError, brief
from gnnscale.core.memory import Memory, read_memory

#: Processor flags of bfloat16 multiplication, as Linux names them.
BF16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16", "svebf16")
#: Flags of which oneDNN, torch's library, needs at least one to multiply bfloat16 in hardware.
_NEEDED_BF16_FLAGS = ("avx512_bf16", "bf16")
#: Variables that limit oneDNN's instruction set, and limits under which its bfloat16 products are
#: slower than float32.
_ONEDNN_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
_LIMITS_WITHOUT_BF16 = ("AVX512_CORE", "AVX512_CORE_VNNI", "AVX2_VNNI_2")
#: Processor vendors, as Linux names them, on which MKL does not use its fast kernels.
_MKL_IS_SLOW_ON = ("AuthenticAMD", "HygonGenuine")
_CGROUP = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
_CPU_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Description of this machine, obtained without importing torch."""

    processor: str  #: model name
    cores: int  #: logical cores that this process may use
    memory: Memory  #: main memory
    bf16: tuple[str, ...]  #: the processor's bfloat16 instructions, a subset of ``BF16_FLAGS``
    home: Path  #: directory of graph stores, ``GNNSCALE_HOME``
    home_free: int  #: free bytes on the disk of ``home``
    python: str  #: version of the interpreter
    system: str  #: kernel and architecture


def usable_cores(cgroup: Path = _CGROUP) -> int:
    """Return the number of cores in CPU affinity and the cgroup's CPU quota, rounded up."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = cores or 1
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, -(-int(quota) // int(period))))


def busy_seconds(stat: Path = _PROC / "stat") -> float:
    """Return the seconds since boot in which any process kept usable cores busy, summed up."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    ticks = 0
    try:
        lines = stat.read_text().splitlines()
    except OSError:
        return 0.0
    for name, *fields in (line.split() for line in lines):
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in usable:
            user, nice, system, _idle, _waiting, *interrupts_and_stolen = map(int, fields[:8])
            ticks += user + nice + system + sum(interrupts_and_stolen)
    return ticks / os.sysconf("SC_CLK_TCK")


def cache_bytes(folder: Path = _CPU_CACHES) -> int:
    """Return the bytes of the first core's last-level cache; 16 MiB if the system hides it."""
    sizes = [0]
    for file in folder.glob("index*/size"):
        number, unit = file.read_text().strip()[:-1], file.read_text().strip()[-1:]
        sizes.append(int(number) * {"K": 2**10, "M": 2**20}.get(unit, 0) if number.isdigit() else 0)
    return max(sizes) or 2**24


def home() -> Path:
    """Return the directory of all artifacts, ``${GNNSCALE_HOME:-~/.cache/gnnscale}``."""
    path = os.environ.get("GNNSCALE_HOME") or "~/.cache/gnnscale"
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"GNNSCALE_HOME={path}: {error}") from None


def installed(distribution: str, module: str | None = None) -> str | None:
    """Return the version of a package, by its name on the package index; None: not installed.

    Without metadata the version is unknown if ``module``, whose parents are imported, exists.
    """
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(distribution)
    with suppress(ImportError, ValueError):
        if module is not None and importlib.util.find_spec(module) is not None:
            return "unknown version"
    return None


def find_machine() -> Machine:
    """Return the description of this machine; takes milliseconds."""
    flags = _cpu_flags()
    existing = home()
    while not existing.exists():
        existing = existing.parent
    return Machine(
        processor=_cpu_field("model name", "CPU part") or platform.processor() or "unknown",
        cores=usable_cores(),
        memory=read_memory(),
        bf16=tuple(flag for flag in BF16_FLAGS if flag in flags),
        home=home(),
        home_free=shutil.disk_usage(existing).free,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
    )


@cache
def multiplies_bfloat16() -> bool:
    """Whether torch multiplies bfloat16 in hardware; in software it is up to 50 times slower."""
    import torch

    # Flags decide, not a timing, so that a repeated run uses one data type.
    limit = next((os.environ[name] for name in _ONEDNN_LIMITS if name in os.environ), "")
    return (
        any(flag in _cpu_flags() for flag in _NEEDED_BF16_FLAGS)
        and limit.upper() not in _LIMITS_WITHOUT_BF16
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


@cache
def multiplies_by_onednn() -> bool:
    """Whether float32 products are to use oneDNN: on AMD processors, where MKL is slower."""
    import torch

    return (
        _cpu_field("vendor_id") in _MKL_IS_SLOW_ON
        and torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def _cpu_flags() -> list[str]:
    return _cpu_field("flags", "Features").split()


def _cpu_field(*names: str) -> str:
    """Return the value of the first line of /proc/cpuinfo whose key is in ``names``; "" if none."""
    try:
        lines = (_PROC / "cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in names:
            return value.strip()
    return ""


_TORCHRUN = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}


def torchrun_rank() -> int | None:
    """Return this process's global rank; None if ``torchrun`` did not start this process."""
    return int(os.environ["RANK"]) if os.environ.keys() >= _TORCHRUN else None


def restarting_run() -> str | None:
    """Return torchrun's ``--rdzv-id``, a folder's name, if it restarts processes, else None."""
    if torchrun_rank() is None or os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") == "0":
        return None
    name = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    if name == "none":
        raise ConfigError(
            "torchrun --max-restarts: expected --rdzv-id=NAME, unique for each run; "
            "restarted processes find the run by this name"
        )
    if not re.fullmatch(r"\w[\w.-]{0,99}", name, re.ASCII):
        raise ConfigError(
            f"torchrun --rdzv-id={brief(name)}: expected letters, digits, '_', '.' and '-' with "
            "--max-restarts"
        )
    return name


def leads_machine() -> bool:
    """Whether this process is local rank 0 of ``torchrun`` on this machine."""
    return os.environ.get("LOCAL_RANK") == "0"


def let_idle_threads_sleep() -> None:
    """Set OMP_WAIT_POLICY, unless set, so that idle OpenMP threads sleep; before torch's import."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
