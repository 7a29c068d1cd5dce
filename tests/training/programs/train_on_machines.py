"""One of several processes as torchrun starts them, which runs the command line in a folder.

A machine has ``per_machine`` processes; ``N`` in an option stands for the machine's number.
"""

import os
import sys
from importlib import import_module
from pathlib import Path

from surroundings import set_by_torchrun

from gnnscale.cli import main

# Before the processes are forked, so that each has its imports behind it.
for module in ("gnnscale.cli.command", "gnnscale.training.train"):
    import_module(module)


def run(
    rank: int, size: int, meeting: Path, port: str, per_machine: str, folder: str, *options: str
) -> None:
    set_by_torchrun(rank, size, port)
    machine, place = divmod(rank, int(per_machine))
    os.environ |= {"LOCAL_RANK": str(place), "LOCAL_WORLD_SIZE": per_machine}
    os.chdir(folder)
    sys.argv = ["gnnscale", "train", *(each.replace("/N", f"/{machine}") for each in options)]
    assert main() == 0
