"""Run ``run(rank, size, meeting, ...)`` of a module beside this file in several processes.

Usage: together.py MODULE SIZE MEETING [ARGUMENT ...]

The processes are forked of one that has imported all that they need, as workers of a run are: most
of them work for less time than the imports take. The first that fails ends all.
"""

import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType


def main(module: ModuleType, size: int, meeting: Path, arguments: list[str]) -> int:
    for rank in range(size):
        if os.fork() == 0:
            # A thread of gloo may still let go of a tensor, for which it needs an interpreter.
            os._exit(run(module, rank, size, meeting, arguments))
    for _ in range(size):
        if os.wait()[1] != 0:
            return 1  # the fixture ends the others
    return 0


def run(module: ModuleType, rank: int, size: int, meeting: Path, arguments: list[str]) -> int:
    """Return the exit status of one process."""
    failed = 0
    try:
        module.run(rank, size, meeting, *arguments)
    except BaseException:
        print(f"rank {rank}:", file=sys.stderr)
        traceback.print_exc()
        failed = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return failed


if __name__ == "__main__":
    sys.exit(main(import_module(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]))
