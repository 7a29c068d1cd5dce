"""Third-party partitioners run in a subprocess, since they crash, print and keep memory.

A temporary folder passes arrays as ``.npy`` files and METIS's text, and the owners in return.
``begin`` is the subprocess's side.
"""

import ctypes
import fcntl
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gnnscale import ops
from gnnscale.core import ConfigError, one_line, python_command
from gnnscale.core.metrics import note_child
from gnnscale.core.types import Float64Array, Int32Array, Int64Array, IntArray

#: Names of the folders begin so.
PREFIX = "gnnscale-apart-"
#: For an instant a folder is not locked yet, so new ones are left alone.
_NEW_S = 60


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty folder in TMPDIR that only this user may enter, and remove it afterwards.

    The process holds a lock on it as long as it lives. The next call removes the folders of
    processes that were killed.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # somebody else's, or gone by now
            _remove_abandoned(folder)
    with tempfile.TemporaryDirectory(prefix=PREFIX) as place, _locked(Path(place)):
        yield Path(place)


@contextmanager
def _locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)


def _remove_abandoned(folder: Path) -> None:
    status = folder.lstat()
    if status.st_uid == os.getuid() and time.time() - status.st_mtime > _NEW_S:
        with _locked(folder, wait=False):
            shutil.rmtree(folder)


#: Tools: the module that each imports, and how to get it.
TOOLS = {
    "dgl": ("dgl", "pip install 'gnnscale[dgl]'"),
    "metis": ("pymetis", "pip install 'gnnscale[metis]'"),
    "mtkahypar": ("mtkahypar", "pip install mtkahypar"),
}

#: Weights are turned into whole numbers of about this size on average.
_RESOLUTION = 100
#: The other side's first words.
PROGRAM = "from gnnscale.partition.edge_cut.subprocess import begin; begin(sys.argv[1:])"
#: How far Mt-KaHyPar may leave its one combined weight out of balance.
_EPSILON = 0.01
#: Of Linux's prctl.
_PR_SET_PDEATHSIG = 1


class PartitionResult(NamedTuple):
    """The answer of a subprocess."""

    owner: Int32Array  #: ``[num_vertices]`` int32
    peak_bytes: int  #: what the process held at most


def is_installed(tool: str) -> bool:
    """Return whether a tool of ``TOOLS`` could be imported."""
    return importlib.util.find_spec(TOOLS[tool][0]) is not None


def require(tool: str, option: str) -> None:
    """Raise ConfigError, with what to install, if the tool of an option is missing."""
    if not is_installed(tool):
        module, remedy = TOOLS[tool]
        raise ConfigError(f"{option}: needs {module}, which is not installed; {remedy}")


def combined(weights: Int64Array) -> Int64Array:
    """Return one weight for each row of ``[num_vertices, num_weights]``: the sum of its shares.

    The weights are positive whole numbers.
    """
    totals = np.maximum(weights.sum(axis=0), 1)
    scale = _RESOLUTION * len(weights) / weights.shape[1]
    shares: Float64Array = weights @ (scale / totals)
    return np.maximum(np.rint(shares), 1).astype(np.int64)


def run_tool(
    tool: str,
    indptr: Int64Array,
    indices: IntArray,
    *,
    vertex_weights: Int64Array,
    edge_weights: Int32Array | None = None,
    num_parts: int,
    num_threads: int,
) -> PartitionResult:
    """Partition an undirected simple graph, with both directions of every edge, in a subprocess.

    ``dgl`` balances each of ``vertex_weights`` ``[num_vertices, num_weights]``, other ``TOOLS``
    their sum in shares of the totals. ``mtkahypar`` alone takes ``edge_weights``
    ``[len(indices)]``; None for 1 each.

    Raises:
        ConfigError: the tool ended without an answer; with why.
    """
    if num_parts == 1 or len(indptr) == 1:
        return PartitionResult(np.zeros(len(indptr) - 1, np.int32), 0)
    with scratch_folder() as folder:
        with _naming_place(folder):
            if tool == "mtkahypar":
                with (folder / "graph").open("wb") as file:
                    ops.write_metis(
                        file.fileno(),
                        indptr,
                        indices,
                        vertex_weights=combined(vertex_weights),
                        edge_weights=edge_weights,
                        num_threads=num_threads,
                    )
            else:
                np.save(folder / "indptr.npy", indptr)
                np.save(folder / "indices.npy", indices)
                weights = vertex_weights if tool == "dgl" else combined(vertex_weights)
                np.save(folder / "weights.npy", weights)
        _run(tool, folder, num_parts, num_threads)
        owner = np.load(folder / "owner.npy", allow_pickle=False)
        peak = int((folder / "peak").read_text())
    note_child(peak)
    if owner.shape != (len(indptr) - 1,) or owner.min() < 0 or owner.max() >= num_parts:
        raise ConfigError(f"{TOOLS[tool][0]}: answered with owners that are no parts")
    return PartitionResult(owner.astype(np.int32, copy=False), peak)


@contextmanager
def _naming_place(folder: Path) -> Iterator[None]:
    """Name the full disk, since the partition itself is written elsewhere."""
    try:
        yield
    except OSError as error:
        # NumPy tells how much it wrote, and not why that was all.
        raise ConfigError(
            f"{folder.parent}: no room for the graph on its way to a partitioner "
            f"({error.strerror or error}); name another folder in TMPDIR"
        ) from None


def _run(tool: str, folder: Path, num_parts: int, num_threads: int) -> None:
    arguments = [tool, str(folder), str(num_parts), str(num_threads)]
    with (folder / "errors").open("w+b") as errors:
        process = subprocess.Popen(
            python_command(PROGRAM, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            # METIS leaves files of its own in it.
            cwd=folder,
            # The tools' threads follow the option, whatever this process was started with.
            env=os.environ | {"OMP_NUM_THREADS": str(num_threads)},
        )
        try:
            status = process.wait()
        finally:  # an interrupt ends it too
            process.kill()
            process.wait()
        if status:
            errors.seek(0)
            lines = errors.read()[-4096:].decode(errors="replace").strip().splitlines()
            raise ConfigError(f"{TOOLS[tool][0]}: {_cause(status, lines)}")


def _cause(status: int, lines: list[str]) -> str:
    last = f": {one_line(lines[-1])}" if lines else ""
    if status == -signal.SIGKILL:
        return "killed, most likely for want of memory"
    if status < 0:
        return f"crashed by signal {signal.Signals(-status).name}{last}"
    if lines and "MemoryError" in lines[-1]:
        return f"out of memory{last}"
    return f"failed with status {status}{last}"


def _dgl(folder: Path, num_parts: int, num_threads: int) -> Any:
    """METIS as DistDGL calls it, with a constraint for each weight."""
    from gnnscale.core.optional import import_dgl

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dgl = import_dgl()
        import torch
        from dgl.partition import _CAPI_DGLMetisPartition_Hetero
    indptr, indices, weights = (np.load(folder / f"{name}.npy") for name in _ARRAYS)
    lists = (torch.from_numpy(array.astype(np.int64, copy=False)) for array in (indptr, indices))
    del indices
    no_edge_ids = torch.empty(0, dtype=torch.int64)
    graph = dgl.graph(("csc", (*lists, no_edge_ids)), num_nodes=len(indptr) - 1)
    balanced = dgl.backend.to_dgl_nd(torch.from_numpy(weights.reshape(-1)))
    owner = _CAPI_DGLMetisPartition_Hetero(graph._graph, num_parts, balanced, "k-way", True)
    if not len(owner):
        raise RuntimeError("METIS found no partition")
    return dgl.utils.toindex(owner).tousertensor().numpy()


def _metis(folder: Path, num_parts: int, num_threads: int) -> Any:
    """METIS with one weight for each vertex."""
    import pymetis

    indptr, indices, weights = (
        np.load(folder / f"{name}.npy").astype(np.int64, copy=False) for name in _ARRAYS
    )
    found = pymetis.part_graph(
        num_parts, xadj=indptr, adjncy=indices, vweights=weights, recursive=False
    )
    return np.asarray(found.vertex_part)


def _mtkahypar(folder: Path, num_parts: int, num_threads: int) -> Any:
    """Mt-KaHyPar with its preset whose answer does not depend on the number of threads."""
    import mtkahypar

    library = mtkahypar.initialize(num_threads, False)
    context = library.context_from_preset(mtkahypar.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(num_parts, _EPSILON, mtkahypar.Objective.CUT)
    context.logging = False
    mtkahypar.set_seed(0)
    graph = library.graph_from_file(str(folder / "graph"), context, mtkahypar.FileFormat.METIS)
    return np.array(graph.partition(context).get_partition(), np.int32)


_ARRAYS = ("indptr", "indices", "weights")
_CALLS = {"dgl": _dgl, "metis": _metis, "mtkahypar": _mtkahypar}


@contextmanager
def _in_one_line() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise SystemExit(one_line(f"{type(error).__name__}: {error}")) from None


def main(arguments: list[str]) -> None:
    """Partition the graph in a folder; write owners and peak memory there."""
    tool, place, num_parts, num_threads = arguments
    folder = Path(place)
    with _in_one_line():
        owner = _CALLS[tool](folder, int(num_parts), int(num_threads))
        np.save(folder / "owner.npy", owner.astype(np.int32, copy=False))
        # Not ru_maxrss, which begins with what the parent held.
        status = Path("/proc/self/status").read_text()
        peak = re.search(r"VmHWM:\s*(\d+) kB", status)
        (folder / "peak").write_text(str(int(peak[1]) * 1024 if peak else 0))


def begin(arguments: list[str]) -> None:
    """Run ``main`` in a process that another one has started for this, and that ends with it.

    Tools compute for hours without returning to Python, so the kernel has to kill it.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    main(arguments)
