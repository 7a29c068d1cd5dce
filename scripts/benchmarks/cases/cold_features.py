"""Features larger than memory: rows at random places, cold, against what the disk can do.

Needs root, to start itself in a control group whose memory is limited, and fio for the disk's own
rate: random reads of 4 KiB past the page cache, as many on their way at once as the disk's queue
takes. A page counts as often as it was read; rows that straddle pages need both. `mapped` reads the
same file without advice, one row after the other.
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.runner import in_subprocess, medians, show, take, timed

_CGROUP = Path("/sys/fs/cgroup")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MIB = 1 << 20
#: Threads of fio, and the reads that each has on their way: as many as the disk takes in all.
_FIO_JOBS, _FIO_DEPTH = 4, 64
#: Rows of a round, and seconds of fio's.
_NUM_ROWS = {"gnnscale": 100_000, "mapped": 300}
_FIO_S = 3
#: Seconds in which the last processes of a group end.
_ENDED_S = 30.0


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memory-mib", type=int, default=512, help="of the control group")
    parser.add_argument("--features-mib", type=int, default=2048, help="size of the file")
    parser.add_argument("--row-bytes", type=int, default=256)
    take(parser, threads=2, rounds=3, folder=None)


def enter(group: Path) -> list[str]:
    """Return the beginning of a command that runs in a control group."""
    return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs")]


@contextmanager
def limited_group(memory_bytes: int, *, name: str = "") -> Iterator[Path]:
    """Make a control group of this much memory; ``name`` distinguishes it from further ones."""
    version_1 = _CGROUP / "memory" / "memory.limit_in_bytes"
    folder = (version_1.parent if version_1.exists() else _CGROUP) / f"gnnscale_{os.getpid()}{name}"
    limit = "memory.limit_in_bytes" if version_1.exists() else "memory.max"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(memory_bytes))
    except OSError as error:
        raise SystemExit(f"{folder}: no control group with limited memory ({error})") from None
    try:
        yield folder
    finally:
        end = time.monotonic() + _ENDED_S
        while folder.joinpath("cgroup.procs").read_text() and time.monotonic() < end:
            time.sleep(0.1)
        folder.rmdir()


def write_features(path: Path, num_rows: int, width: int) -> None:
    from gnnscale.core.artifact.npy import NpyWriter

    generator = np.random.Generator(np.random.Philox(0))
    writer = NpyWriter(path, np.dtype(np.float32), (width,))
    for first in range(0, num_rows, 1 << 16):
        writer.append(generator.random((min(1 << 16, num_rows - first), width), np.float32))
    writer.close()


def forget(path: Path) -> None:
    with path.open("r+b") as file:
        os.fdatasync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bytes_read() -> int:
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    raise SystemExit("/proc/self/io does not count the bytes read")


def graph_of(path: Path) -> Any:
    from gnnscale.core.artifact.npy import map_npy
    from gnnscale.graph import Graph, Split

    features, one = map_npy(path), np.zeros(1, np.int32)
    return Graph(
        name="bench",
        indptr=np.zeros(len(features) + 1, np.int64),
        indices=one[:0],
        features=features,
        feature_dtype="float32",
        labels=np.zeros(len(features), np.int64),
        num_classes=1,
        split=Split(train_idx=one, valid_idx=one, test_idx=one),
    )


def measure(system: str, file: str, round_number: int, threads: int) -> dict[str, float]:
    """Read random rows of the file in this process; return rows a second and pages read a page."""
    import torch

    from gnnscale.features import HostFeatures

    path = Path(file)
    forget(path)
    graph = graph_of(path)
    mapped = HostFeatures(graph.features, "float32")
    store = HostFeatures.of(graph) if system == "gnnscale" else mapped
    row_bytes = graph.features[:1].nbytes
    generator = np.random.Generator(np.random.Philox(round_number))
    ids = generator.integers(graph.num_vertices, size=_NUM_ROWS[system])
    start_bytes = path.stat().st_size - graph.feature_bytes + ids * row_bytes
    pages = int(((start_bytes + row_bytes - 1) // _PAGE - start_bytes // _PAGE + 1).sum())
    store.gather(ids[:0], dtype=torch.float32, num_threads=threads)
    before = bytes_read()
    seconds, (rows, _) = timed(partial(store.gather, ids, dtype=torch.float32, num_threads=threads))
    read = bytes_read() - before
    assert np.array_equal(rows[-5:].numpy(), graph.features[ids[-5:]])
    return {"rows_per_s": len(ids) / seconds, "pages_per_page": read / _PAGE / pages}


def fio_reads(path: Path, *options: str) -> Any:
    """Return what fio says of random reads of a file, past the page cache."""
    common = ["--readonly", "--name=rows", f"--filename={path}", "--rw=randread", "--direct=1"]
    command = ["fio", *common, "--time_based", "--output-format=json", *options]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    (job,) = json.loads(answer.stdout[answer.stdout.index("{") :])["jobs"]
    return job["read"]


def disk_rate(path: Path) -> dict[str, float]:
    depth = (f"--bs={_PAGE}", "--ioengine=libaio", f"--iodepth={_FIO_DEPTH}")
    jobs = ("--group_reporting", f"--numjobs={_FIO_JOBS}", f"--runtime={_FIO_S}")
    return {"rows_per_s": fio_reads(path, *depth, *jobs)["iops"], "pages_per_page": 1.0}


def run(options: argparse.Namespace) -> Any:
    systems = ["gnnscale", "mapped", *(["fio"] if shutil.which("fio") else [])]
    answers: dict[str, list[dict[str, float]]] = {name: [] for name in systems}
    with (
        limited_group(options.memory_mib * _MIB) as group,
        tempfile.TemporaryDirectory(dir=options.folder) as folder,
    ):
        path = Path(folder) / "features.npy"
        num_rows = options.features_mib * _MIB // options.row_bytes
        write_features(path, num_rows, options.row_bytes // 4)
        for number in range(options.rounds):
            for name in systems:
                forget(path)
                given = (name, path, number, options.threads)
                own = partial(in_subprocess, measure, *given, prefix=enter(group))
                answers[name].append(disk_rate(path) if name == "fio" else own())
    figures = {name: medians(found) for name, found in answers.items()}
    rate = figures["gnnscale"]["rows_per_s"]
    rows = []
    for name, each in figures.items():
        ratio = f"{rate / each['rows_per_s']:,.2f}x"
        rows.append([name, f"{each['rows_per_s']:,.0f}", ratio, f"{each['pages_per_page']:,.2f}"])
    title = f"{options.features_mib:,} MiB of features, {options.memory_mib:,} MiB of memory"
    show(title, ["system", "rows a second", "ratio", "pages read a page"], rows)
    return figures
