"""What the processes of a run say of themselves: see ``hooks/sitecustomize.py``."""

import os
import time
from pathlib import Path

HOOKS = Path(__file__).parent / "hooks"
#: Seconds for an answer; a process that imports has none.
ANSWER_S = 0.05


class Watched:
    """The folder in which processes of commands with its ``environment`` meet this program."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        paths = [str(HOOKS), *filter(None, [environment.get("PYTHONPATH")])]
        own = {"GNNSCALE_WATCHED": str(folder), "PYTHONPATH": os.pathsep.join(paths)}
        # A cache of torch's own, which it would put among temporary files.
        own["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
        self.environment = environment | own

    def name(self, pid: int) -> str | None:
        """Return what the runtime calls a worker; None for any other process."""
        try:
            return (self._folder / f"{pid}.name").read_text()
        except OSError:
            return None

    def doing(self, pid: int) -> str:
        """Have a worker report which stages its threads are in."""
        ask, answer = (self._folder / f"{pid}.{what}" for what in ("ask", "tell"))
        ask.touch()
        deadline = time.monotonic() + ANSWER_S
        while ask.exists() and time.monotonic() < deadline:
            time.sleep(0.0005)
        if ask.exists():
            return "start"
        return " + ".join(answer.read_text().splitlines()) or "no stage"

    def kill_in(self, pid: int, stage: str) -> None:
        """Have a worker killed as soon as one of its threads is in ``stage``."""
        staged = self._folder / f"{pid}.to-kill"
        staged.write_text(stage)
        staged.rename(staged.with_suffix(".kill"))
