"""Third-party partitioners in a subprocess, which isolates their crashes, output and memory.

A temporary folder passes arrays and owners; ``begin`` is the entry point of the subprocess.
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
from gnnscale.core import ConfigError, note_child, one_line, python_command
from gnnscale.core.types import Float64Array, Int32Array, Int64Array, IntArray

#: Prefix of the folders' names.
PREFIX = "gnnscale-apart-"
#: Age in seconds below which a folder is not removed: it may not be locked yet.
_NEW_S = 60


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty folder in TMPDIR that only this user can read, and remove it afterwards.

    The process holds a lock on the folder. The next call removes the folders of killed processes.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # another user's, in use, or removed
            status = folder.lstat()
            if status.st_uid == os.getuid() and time.time() - status.st_mtime > _NEW_S:
                with _locked(folder, wait=False):
                    shutil.rmtree(folder)
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, _locked(Path(name)):
        yield Path(name)


@contextmanager
def _locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)


#: Module of each tool, and the command that installs it.
TOOLS = {
    "dgl": ("dgl", "pip install '.[dgl]'"),
    "metis": ("pymetis", "pip install '.[metis]'"),
    "mtkahypar": ("mtkahypar", "pip install mtkahypar"),
}

#: Mean of the integer weights.
_RESOLUTION = 100
#: First statements of the subprocess.
PROGRAM = "from gnnscale.partition.edge_cut.subprocess import begin; begin(sys.argv[1:])"
#: Imbalance that Mt-KaHyPar may leave in its combined weight.
_EPSILON = 0.01
#: Option of Linux's prctl.
_PR_SET_PDEATHSIG = 1


class PartitionResult(NamedTuple):
    """Part of each vertex by a third-party partitioner, and its subprocess's peak memory."""

    owner: Int32Array  #: ``[num_vertices]`` int32
    peak_bytes: int  #: peak bytes of memory of the subprocess


def is_installed(tool: str) -> bool:
    """Return whether a tool of ``TOOLS`` can be imported."""
    return importlib.util.find_spec(TOOLS[tool][0]) is not None


def require(tool: str, option: str) -> None:
    """Raise ConfigError, naming ``option`` and the package to install, if ``tool`` is missing."""
    if not is_installed(tool):
        module, remedy = TOOLS[tool]
        raise ConfigError(f"{option}: expected {module}, which is not installed; {remedy}")


def combined(weights: Int64Array) -> Int64Array:
    """Return an integer weight per vertex, at least 1, from ``[num_vertices, num_weights]``.

    It is the sum of the vertex's shares of each weight's total, scaled to a mean of about 100.
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
    """Partition an undirected simple graph, both directions of edges, by one of ``TOOLS``.

    ``vertex_weights`` are ``[num_vertices, num_weights]``: ``dgl`` balances each column, other
    tools the sum of the columns, each divided by its total. ``edge_weights`` ``[len(indices)]`` are
    for ``mtkahypar`` only. None: 1 each. Raises ConfigError with the cause if the tool fails.
    """
    if num_parts == 1 or len(indptr) == 1:
        return PartitionResult(np.zeros(len(indptr) - 1, np.int32), 0)
    with scratch_folder() as folder:
        with _disk_errors(folder):
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
        raise ConfigError(f"{TOOLS[tool][0]}: expected owners below {num_parts}, got other values")
    return PartitionResult(owner.astype(np.int32, copy=False), peak)


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """Turn an OSError of the ``with`` block into a ConfigError about TMPDIR, above ``folder``."""
    try:
        yield
    except OSError as error:
        # NumPy reports the bytes written, and not the cause.
        raise ConfigError(
            f"{folder.parent}: expected space for the graph on its way to a partitioner, got "
            f"{error.strerror or error}; name another folder in TMPDIR"
        ) from None


def _run(tool: str, folder: Path, num_parts: int, num_threads: int) -> None:
    arguments = [tool, str(folder), str(num_parts), str(num_threads)]
    with (folder / "errors").open("w+b") as errors:
        process = subprocess.Popen(
            python_command(PROGRAM, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            # METIS writes files into it.
            cwd=folder,
            # The option overrides the environment of this process.
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
    """Return the part of each vertex of ``folder``'s graph by DGL's METIS.

    METIS balances each of the vertex weights in ``folder``; edges weigh 1.
    """
    from gnnscale.core.lazy import import_dgl

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
    """Return the part of each vertex of ``folder``'s graph by METIS, balancing one weight."""
    import pymetis

    indptr, indices, weights = (
        np.load(folder / f"{name}.npy").astype(np.int64, copy=False) for name in _ARRAYS
    )
    partition = pymetis.part_graph(
        num_parts, xadj=indptr, adjncy=indices, vweights=weights, recursive=False
    )
    return np.asarray(partition.vertex_part)


def _mtkahypar(folder: Path, num_parts: int, num_threads: int) -> Any:
    """Return the part of each vertex of ``folder``'s graph by Mt-KaHyPar, deterministically."""
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


def main(arguments: list[str]) -> None:
    """Partition the graph in a folder; write each vertex's part and the peak memory into it.

    ``arguments`` are tool, folder, number of parts and number of threads.
    """
    tool, folder_name, num_parts, num_threads = arguments
    folder = Path(folder_name)
    try:
        owner = _CALLS[tool](folder, int(num_parts), int(num_threads))
        np.save(folder / "owner.npy", owner.astype(np.int32, copy=False))
        # ru_maxrss would include the parent's memory before exec.
        peak = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
        (folder / "peak").write_text(str(int(peak[1]) * 1024 if peak else 0))
    except Exception as error:
        raise SystemExit(one_line(f"{type(error).__name__}: {error}")) from None


def begin(arguments: list[str]) -> None:
    """Run ``main`` in this subprocess, and let the kernel kill it when its parent ends.

    Tools compute for hours without returning to Python, so Python cannot end them.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    main(arguments)
