"""``gnnscale doctor``: an inventory of this machine, or a check of a graph store."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gnnscale import ops
from gnnscale.backend.fpga.csim import build
from gnnscale.core import ConfigError, Machine, find_machine, installed
from gnnscale.core import gpu as nvml
from gnnscale.data.storage.store_verification import verify_store
from gnnscale.data.time_ranges import time_ranges
from gnnscale.graph import Graph
from gnnscale.planner.processor import Processor
from gnnscale.report.formatting import gib

#: Largest number of cards to try if XRT does not report their number.
_MAX_BOARDS = 16
#: Distribution and module of each optional package.
_PACKAGES = {
    "dgl": ("dgl", "dgl"),
    "torch_geometric": ("torch_geometric", "torch_geometric"),
    "torch-sparse": ("torch_sparse", "torch_sparse"),
    "pyg-lib": ("pyg_lib", "pyg_lib"),
    "cuda-core": ("cuda-core", "cuda.core"),
    "pyxrt": ("pyxrt", "pyxrt"),
}


@dataclass(frozen=True, kw_only=True)
class DoctorConfig:
    """Options of ``gnnscale doctor``.

    Attributes:
        calibrate: whether to measure the machine's rates for the performance model.
        store: a graph store to check byte by byte; null: none.
    """

    calibrate: bool = False
    store: Path | None = None


def examine() -> dict[str, Any]:
    """Return the hardware and software of this machine as plain values for JSON (imports torch).

    ``nvidia_error`` says why NVML finds no GPU. ``fpga`` has ``xrt``, the version of XRT,
    ``boards``, names of cards, ``csim_library``, the file of the compiled default design, and
    ``csim_compiler``, the compiler for other designs; None: missing. Each of ``features`` has
    ``needs``, its missing requirement; None: ready.
    """
    import torch

    machine = find_machine()
    packages = {"torch": torch.__version__} | {
        name: installed(*package) for name, package in _PACKAGES.items()
    }
    cuda = _gpus()
    fpga = {**_boards(), **_csim()}
    simd = ops.simd_level()
    return {
        "machine": {**asdict(machine), "home": str(machine.home), "bf16": list(machine.bf16)},
        "simd_level": simd,
        **cuda,
        "fpga": fpga,
        "packages": packages,
        "features": _features(machine, simd, packages, cuda, fpga),
    }


def _gpus() -> dict[str, Any]:
    """Return the GPUs and the driver that NVML finds, or the reason why it finds none."""
    try:
        nvml_gpus = nvml.find_gpus()
    except nvml.NvmlError as error:
        return {"cuda": [], "nvidia_driver": None, "nvidia_error": str(error)}
    driver = f"{nvml_gpus.driver}, CUDA {nvml_gpus.cuda[0]}.{nvml_gpus.cuda[1]}"
    gpus = [asdict(gpu) for gpu in nvml_gpus.devices]
    return {"cuda": gpus, "nvidia_driver": driver, "nvidia_error": None}


def _format_gpu(gpu: dict[str, Any]) -> str:
    if gpu["memory"] is None:
        return f"{gpu['name']} (shares the host's memory)"
    return f"{gpu['name']} ({gib(gpu['memory'])}, {gib(gpu['free'])} free)"


def _cuda_needs(cuda: dict[str, Any], packages: dict[str, str | None]) -> str | None:
    """Return the GPU or package that training on a GPU lacks; None: it lacks neither.

    Whether torch itself was built for CUDA is not checked.
    """
    if not cuda["cuda"]:
        return cuda["nvidia_error"] or "no GPU found"
    return None if packages["cuda-core"] else "pip install '.[cuda]'"


def _boards() -> dict[str, Any]:
    """Return XRT's version (None: ``pyxrt`` cannot be imported), and FPGA cards that it finds."""
    boards: list[str] = []
    try:
        xrt = build.load_pyxrt()
    except ConfigError:
        return {"xrt": None, "boards": boards}
    # A driver without cards, or of another version, may raise any exception.
    try:
        number = xrt.enumerate_devices() if hasattr(xrt, "enumerate_devices") else _MAX_BOARDS
        for index in range(number):
            boards.append(str(xrt.device(index).get_info(xrt.xrt_info_device.name)))
    except Exception:
        pass
    return {"xrt": _xrt_version(), "boards": boards}


def _xrt_version() -> str:
    """Return the version in XRT's ``version.json``, else ``unknown version``; pyxrt lacks it."""
    folder = Path(os.environ.get("XILINX_XRT") or "/opt/xilinx/xrt")
    try:
        return str(json.loads((folder / "version.json").read_text())["BUILD_VERSION"])
    except (OSError, ValueError, LookupError, TypeError):
        return "unknown version"


def _csim() -> dict[str, str | None]:
    """Return the C simulator's library of the default FPGA design, and the compiler for others.

    None: the library or the compiler is missing.
    """
    try:
        compiler = build.compiler()
    except ConfigError:
        compiler = None
    library = build.prebuilt(build.SimulatedDesign())
    return {"csim_library": None if library is None else str(library), "csim_compiler": compiler}


def _features(
    machine: Machine,
    simd: str,
    packages: dict[str, str | None],
    cuda: dict[str, Any],
    fpga: dict[str, Any],
) -> list[dict[str, Any]]:
    """Return gnnscale's features: ``feature``, whether it is ``ready``, and ``needs``.

    ``needs`` is what this machine lacks for the feature, as text; None: nothing.
    """

    def unless(ready: object, requirement: str) -> str | None:
        return None if ready else requirement

    bf16 = "a processor with bfloat16 instructions; float32 in its place without"
    peers = packages["torch-sparse"] or packages["pyg-lib"]
    sampling = "torch-sparse or pyg-lib, as PyG's installation page says"
    pyg = packages["torch_geometric"]
    needs = {
        f"training on the CPU ({simd} kernels)": None,
        "runtime.compute_dtype=bfloat16 at full speed": unless(machine.bf16, bf16),
        "models and loaders in DGL's form": unless(packages["dgl"], "pip install '.[dgl]'"),
        "models and loaders in PyG's form": unless(pyg, "pip install '.[pyg]'"),
        "comparison with PyG's own NeighborLoader": unless(peers, sampling),
        "training on CUDA devices": _cuda_needs(cuda, packages),
        "training on FPGAs in C simulation (csim)": _csim_needs(fpga),
        "training on FPGA boards": _board_needs(fpga, packages["pyxrt"]),
    }
    return [{"feature": name, "ready": need is None, "needs": need} for name, need in needs.items()]


def _csim_needs(fpga: dict[str, Any]) -> str | None:
    if fpga["csim_library"] or fpga["csim_compiler"]:
        return None
    return "a C++ compiler such as g++, or an installation that has the default design's library"


def _board_needs(fpga: dict[str, Any], pyxrt: str | None) -> str:
    bitstream = "a bitstream, see fpga/README.md; none was ever built"
    if fpga["boards"]:
        return bitstream
    if fpga["xrt"]:
        return f"a board, of which XRT ({fpga['xrt']}) finds none; {bitstream}"
    if pyxrt:
        return "pyxrt is there and cannot be imported: source /opt/xilinx/xrt/setup.sh"
    return f"XRT 2.12 or later with pyxrt, from AMD's page of the card; a board; {bitstream}"


def _format_csim(fpga: dict[str, Any]) -> str:
    library = "installed" if fpga["csim_library"] else "not installed"
    compiler = fpga["csim_compiler"] or "no compiler"
    return f"default design {library}, {compiler} for others"


def _format_memory(memory: dict[str, int]) -> str:
    total, physical = memory["total"], memory["installed"]
    limit = f" (limited by a container or ulimit -v, {gib(physical)} installed)"
    return f"{gib(total)}{limit if total < physical else ''}, {gib(memory['available'])} available"


def print_findings(findings: dict[str, Any], console: Console) -> None:
    """Print the result of ``examine`` as two tables."""
    machine = findings["machine"]
    machine_table = Table(title="Found on this machine", show_header=False)
    rows: Sequence[tuple[str, str]] = [
        ("processor", machine["processor"]),
        ("cores this process may use", str(machine["cores"])),
        ("memory", _format_memory(machine["memory"])),
        ("SIMD kernels", findings["simd_level"]),
        ("bfloat16 instructions", ", ".join(machine["bf16"]) or "none"),
        ("GPUs", ", ".join([_format_gpu(gpu) for gpu in findings["cuda"]]) or "none"),
        ("NVIDIA driver", findings["nvidia_driver"] or "none"),
        ("FPGA boards", ", ".join(findings["fpga"]["boards"]) or "none"),
        ("FPGA simulation (csim)", _format_csim(findings["fpga"])),
        *((name, version or "not installed") for name, version in findings["packages"].items()),
        ("graph stores", f"{machine['home']}, {gib(machine['home_free'])} free"),
        ("Python", machine["python"]),
        ("system", machine["system"]),
    ]
    for row in rows:
        machine_table.add_row(*map(Text, row))
    features = Table("feature", "needs", title="What each feature still needs")
    for feature in findings["features"]:
        features.add_row(feature["feature"], Text(feature["needs"] or "ready"))
    console.print(machine_table)
    console.print(features)


def examine_store(path: Path) -> dict[str, Any]:
    """Check each byte of a graph store; return ``path``, ``checks`` and ``times``.

    An entry of ``checks`` has ``what`` was checked and the first ``problem`` (None: none).
    ``times`` are the ranges of a sound graph's times by type; there is none without times.
    """
    checks = [asdict(check) for check in verify_store(path)]
    findings: dict[str, Any] = {"path": str(path), "checks": checks}
    if store_problem(findings) is None and (ranges := time_ranges(Graph.open(path))):
        findings["times"] = ranges
    return findings


def store_problem(findings: dict[str, Any]) -> str | None:
    """Return text with the first problem of ``examine_store``, and how many follow; None: none."""
    problems = [check["problem"] for check in findings["checks"] if check["problem"] is not None]
    more = f" (and {len(problems) - 1} more, see doctor.json)" if len(problems) > 1 else ""
    return f"{problems[0]}{more}" if problems else None


def print_store(findings: dict[str, Any], console: Console) -> None:
    """Print the result of ``examine_store`` as a table."""
    table = Table("checked", "found", title=Text(f"Graph store {findings['path']}"))
    for check in findings["checks"]:
        table.add_row(Text(check["what"]), Text(check["problem"] or "as it must be"))
    for of, text in findings.get("times", {}).items():
        table.add_row(Text(f"times of {of}"), Text(text))
    console.print(table)


def print_rates(processor: Processor, console: Console) -> None:
    """Print a table of calibrated rates by number of threads.

    A line below has the cost of synchronization, messages and contention between workers.
    """
    table = Table("rate", title=Text(f"Rates of {processor.name}"))
    for threads in processor.threads:
        table.add_column(f"{threads} threads" if threads > 1 else "1 thread", justify="right")
    rates = (
        ("features from memory, GB/s", processor.rates.memory_bandwidth, 1e9),
        ("features from the cache, GB/s", processor.rates.cache_bandwidth, 1e9),
        ("hidden rows aggregated, GB/s", processor.rates.aggregate_bandwidth, 1e9),
        ("activations, GB/s", processor.rates.stream_bandwidth, 1e9),
        ("multiply-accumulates, G/s", processor.rates.macs_per_s, 1e9),
        ("edges sampled, M/s", processor.rates.sampled_edges_per_s, 1e6),
        ("a layer at least, µs", processor.layer_s, 1e-6),
    )
    for name, values, unit in rates:
        table.add_row(name, *(f"{value / unit:,.1f}" for value in values))
    console.print(table)
    sharing = processor.sharing
    message_s, bandwidth = sharing.messages
    console.print(
        f"between workers: all-reduce {sharing.sync_latency_s * 1e6:,.0f} µs and "
        f"{sharing.sync_bandwidth / 1e9:,.2f} GB/s, a message {message_s * 1e6:,.0f} µs and "
        f"{bandwidth / 1e9:,.2f} GB/s; while all cores are busy, computing takes "
        f"{sharing.compute_contention:.2f} and loading {sharing.memory_contention:.2f} times "
        f"as long; a worker waits for an equal one {100 * sharing.straggler_wait:.0f} % of a step"
    )
