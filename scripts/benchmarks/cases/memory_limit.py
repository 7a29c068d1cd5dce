"""The smallest control group in which a training run of a small graph ends well, by bisection.

The group limits launcher, workers and the process that they are forked from, together, and counts
the files that they read: Python and torch, of which the system frees what it can. Each run begins
with an empty ``GNNSCALE_HOME``, and so measures the machine. It needs root, on Linux. ``--cache``
lets the machine state a last-level cache of so many MiB, as a large one does.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from fault_injection.cgroups import limited_group

from benchmarks.runner import SCRIPT, show, take

#: The run: the options of ``gnnscale train`` but for the graph's size.
RUN = ("dataset.num_vertices=600",)
MIB = 1 << 20
_CACHES = "/sys/devices/system/cpu/cpu0/cache"
#: Mounts a file over the size of each cache that is the largest, and runs a command.
_PRETEND = (
    'size=$1; shift; for file in {caches}/index*/size; do case $(cat "$(dirname "$file")/level") '
    'in 3|4) mount --bind "$size" "$file";; esac; done; exec "$@"'
)


def options(parser: argparse.ArgumentParser) -> None:
    take(parser, rounds=1)
    parser.add_argument("--low", type=int, default=200, help="MiB that do not do")
    parser.add_argument("--high", type=int, default=1024, help="MiB that should")
    parser.add_argument("--step", type=int, default=25, help="MiB to which the limit is found")
    parser.add_argument("--cache", type=int, help="MiB of the last-level cache; needs unshare")
    parser.add_argument("--options", nargs="*", default=[], help="further options of the run")


def ends_well(limit: int, overrides: list[str], cache: int | None) -> tuple[bool, int, str]:
    """Run in a group of ``limit`` MiB: whether that ended well, the peak in MiB, the last line."""
    with tempfile.TemporaryDirectory() as folder, limited_group(limit * MIB) as group:
        if group is None:
            raise SystemExit("no control group can be made here: memory_limit needs root")
        command = [sys.executable, "-m", "gnnscale", "train", *RUN, *overrides]
        command += [f"output={folder}/r"]
        if cache is not None:
            size = Path(folder, "size")
            size.write_text(f"{cache * 1024}K\n")
            script = _PRETEND.format(caches=_CACHES)
            command = ["unshare", "-m", "sh", "-c", script, "-", str(size), *command]
        run = subprocess.run(
            command,
            cwd=SCRIPT,
            env=os.environ | {"GNNSCALE_HOME": f"{folder}/home"},
            preexec_fn=group.enter,
            capture_output=True,
            text=True,
        )
        lines = run.stderr.strip().splitlines() or [""]
        return run.returncode == 0, group.peak_bytes // MIB, lines[-1]


def smallest(options: argparse.Namespace) -> int | None:
    """Return the smallest limit in MiB that does; None if not even the largest one does."""
    low, high = options.low, options.high
    well, peak, line = ends_well(high, options.options, options.cache)
    print(f"{high} MiB: {'ended well' if well else line}; peak {peak} MiB", flush=True)
    if not well:
        return None
    while high - low > options.step:
        limit = (low + high) // 2
        well, peak, line = ends_well(limit, options.options, options.cache)
        print(f"{limit} MiB: {'ended well' if well else line}; peak {peak} MiB", flush=True)
        low, high = (low, limit) if well else (limit, high)
    return high


def run(options: argparse.Namespace) -> Any:
    found = [smallest(options) for _ in range(options.rounds)]
    rows = [
        (str(number), "none" if each is None else f"{each} MiB")
        for number, each in enumerate(found, 1)
    ]
    show("Smallest control group", ["round", "limit"], rows)
    missed = [] if all(found) else [f"{options.high} MiB do not do"]
    return {"limit_mib": found, "missed": missed}
