import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from fault_injection.processes import descendants, elapsed, look_at

#: Starts a run without an end, says so once it trains, and waits to be killed.
STARTER = """
import os, sys, threading
from pathlib import Path

sys.path.append(sys.argv[1])
from fault_injection.training import start
from fault_injection.watched import Watched

folder = Path(sys.argv[2])
watched = Watched(folder, dict(os.environ))
run = start(folder / "run", *sys.argv[3:], devices=("cpu:0", "cpu:1"), watched=watched)
run.wait_for((folder / "run" / "metrics.jsonl").exists)
print(run.process.pid, run.temporary, flush=True)
threading.Event().wait()
"""
ENDLESS = (
    *("dataset.num_vertices=600", "dataset.num_edges=3000", "dataset.num_classes=4"),
    *("dataset.num_features=8", "model.hidden=8", "batch_size=64", "num_threads=2"),
    *("device_plan=cpu_x2", "epochs=1000000"),
)


def test_a_run_ends_with_its_starter(tmp_path: Path, write_figures: Callable[[Path], Path]) -> None:
    scripts = Path(__file__).parents[3] / "scripts"
    home = write_figures(tmp_path / "home")
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, str(scripts), str(tmp_path), *ENDLESS],
        env=os.environ | {"GNNSCALE_HOME": str(home), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline().split()[0])
        command = look_at(pid)
        assert command is not None
        processes = [command[0], *descendants(pid)]
        assert len(processes) >= 4  # the command, its server, two workers
        starter.kill()
    for seconds in elapsed():
        if not any(each.alive for each in processes):
            return
        assert seconds < 60, processes
