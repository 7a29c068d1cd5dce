"""Time an installation in a fresh environment, from nothing to the end of the first training.

    python scripts/tools/time_install.py                      # compiles a copy of the tracked files
    python scripts/tools/time_install.py --wheel FILE.whl     # no compiler is used
    python scripts/tools/time_install.py --options epochs=1   # a shorter training

Steps are those of README's first command. Each has its wall time and the seconds of all processors,
children included. pip's cache of downloads is used, unless PIP_NO_CACHE_DIR is set.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: An installation in an environment that another folder is preferred to would not be fresh.
_NOT_INHERITED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "GNNSCALE_HOME")


def copy_sources(root: Path, target: Path) -> None:
    """Copy the files that git tracks in ``root`` to ``target``, as a clone has them."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True, text=True
    ).stdout.split("\0")
    for name in filter(None, names):
        source = root / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(source.read_bytes())


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_step(
    command: Sequence[object], folder: Path, variables: Mapping[str, str]
) -> tuple[float, float]:
    """Run a command; return its wall time and processor time, seconds. SystemExit if it fails."""
    words = [str(word) for word in command]
    wall, processor = time.perf_counter(), _processor_seconds()
    answer = subprocess.run(
        words, cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    if answer.returncode != 0:
        raise SystemExit(f"{' '.join(words)}\n{answer.stdout}{answer.stderr}")
    return time.perf_counter() - wall, _processor_seconds() - processor


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--wheel", type=Path, help="a wheel of this Python, in place of the sources"
    )
    parser.add_argument("--options", nargs="*", default=[], help="options of the training")
    options = parser.parse_args(arguments)
    variables = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    with tempfile.TemporaryDirectory(prefix="gnnscale-install-") as name:
        folder = Path(name)
        copy_sources(ROOT, folder / "clone")
        environment, variables["GNNSCALE_HOME"] = folder / "venv", str(folder / "home")
        what = folder / "clone" if options.wheel is None else options.wheel.resolve()
        constraints = ROOT / "constraints.txt"
        steps = {
            "environment": (sys.executable, "-m", "venv", environment),
            "installation": (
                *(environment / "bin" / "python", "-m", "pip", "install", "-q"),
                *("-c", constraints, what),
            ),
            "first training": (environment / "bin" / "gnnscale", "train", *options.options),
        }
        total_wall = total_processor = 0.0
        print(f"{'step':16} {'wall s':>7} {'processor s':>12}")
        for step, command in steps.items():
            wall, processor = run_step(command, folder, variables)
            total_wall, total_processor = total_wall + wall, total_processor + processor
            print(f"{step:16} {wall:7.1f} {processor:12.1f}", flush=True)
        print(f"{'total':16} {total_wall:7.1f} {total_processor:12.1f}")


if __name__ == "__main__":
    main()
