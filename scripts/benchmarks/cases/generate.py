"""How long designs take: to explore, to generate, and until the first step in C simulation.

For each board, ``gnnscale generate`` and then ``gnnscale train`` on its design run in an empty
``GNNSCALE_HOME``. All boards are explored in both modes besides. No figure is one of hardware.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.runner import take
from gnnscale.fpga_design.dse import MODES, explore, make_goal
from gnnscale.nn import GCN
from gnnscale.planner.fpga_board import board, boards
from gnnscale.planner.graphs import PUBLISHED
from gnnscale.planner.simulator.hitgnn import local_share
from gnnscale.planner.simulator.simulate import published_task
from gnnscale.sampling import NeighborSampling

GRAPHS = ("reddit", "yelp", "amazon", "products")
#: Seconds that exploring all boards, and that the first step, may take.
TARGETS = {"explore": 10, "first step": 60}


def options(parser: argparse.ArgumentParser) -> None:
    take(parser, rounds=3)
    parser.add_argument("--boards", nargs="+", default=["u250", "u50"], choices=boards())


def seconds_of_exploring() -> float:
    """Return the seconds in which all boards are explored for four graphs, in both modes."""
    start = time.perf_counter()
    sampler = NeighborSampling(fanouts=[25, 10])
    for name in boards():
        tasks = [
            published_task(graph, PUBLISHED[graph], GCN(hidden=128), sampler, batch_size=1024)
            for graph in GRAPHS
        ]
        shared = [(task, local_share("distdgl", None, (25, 10), 1024, 4)) for task in tasks]
        card = board(name)
        goal = make_goal(shared, batch_size=1024, link_bandwidth=card.link_bandwidth)
        for mode in MODES:
            explore(card, goal, mode)
    return time.perf_counter() - start


def seconds_of_commands(name: str) -> tuple[float, float]:
    """Return the seconds until a design is written, and until its first step is trained."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"GNNSCALE_HOME": f"{folder}/home"}
        command = [sys.executable, "-m", "gnnscale"]
        small = ["dataset=planted_partition", "dataset.num_vertices=4000"]
        small += ["dataset.num_edges=40000", "batch_size=4000"]
        quiet: Any = {"env": environment, "cwd": folder, "check": True, "capture_output": True}
        start = time.perf_counter()
        subprocess.run([*command, "generate", f"board={name}", *small, "output=design"], **quiet)
        written = time.perf_counter() - start
        train = [*command, "train", "config=design/train.yaml", "epochs=1", "output=run"]
        subprocess.run(train, **quiet)
        if not (Path(folder) / "run" / "metrics.jsonl").read_text():
            raise SystemExit(f"{name}: trained nothing")
        return written, time.perf_counter() - start


def run(options: argparse.Namespace) -> Any:
    exploring = [seconds_of_exploring() for _ in range(options.rounds)]
    found: dict[str, Any] = {"explore": statistics.median(exploring)}
    print(f"exploring {len(boards())} boards, both modes: {found['explore']:.1f} s", flush=True)
    for name in options.boards:
        rounds = [seconds_of_commands(name) for _ in range(options.rounds)]
        written, trained = (statistics.median(each) for each in zip(*rounds, strict=True))
        found[name] = {"generated": written, "first step": trained}
        print(f"{name}: design written after {written:.1f} s, first epoch after {trained:.1f} s")
    slowest = max(found[name]["first step"] for name in options.boards)
    met = found["explore"] < TARGETS["explore"] and slowest < TARGETS["first step"]
    print("targets met" if met else f"targets missed: {TARGETS}")
    return found
