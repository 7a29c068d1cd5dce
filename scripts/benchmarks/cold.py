"""What cases with a cold disk share: limited memory, forgotten files, fio. Needs root."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fault_injection.cgroups import limited_group

MIB = 1 << 20


@contextmanager
def limited(memory_bytes: int | None) -> Iterator[list[str]]:
    """Yield the beginning of a command that runs in a control group of this much memory, if any."""
    if memory_bytes is None:
        yield []
        return
    with limited_group(memory_bytes) as group:
        if group is None:
            raise SystemExit("no control group with limited memory can be made: this needs root")
        yield ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group.folder / "cgroup.procs")]


def forget_files() -> None:
    subprocess.run(["sync"], check=True)
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


def require_fio() -> None:
    if shutil.which("fio") is None:
        raise SystemExit("fio is not installed")


def fio_rate(path: Path, *options: str) -> float:
    """Return the bytes a second of fio's reads of a file, past the page cache."""
    common = ["--readonly", "--name=rows", f"--filename={path}", "--direct=1"]
    command = ["fio", *common, "--ioengine=io_uring", "--output-format=json", *options]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    (job,) = json.loads(answer.stdout[answer.stdout.index("{") :])["jobs"]
    found: dict[str, Any] = job["read"]
    return float(found["bw_bytes"])
