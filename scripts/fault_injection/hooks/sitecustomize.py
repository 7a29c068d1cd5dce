"""Imported by every Python process of a run: a thread that names it, and does what it is asked to.

Files in the folder ``GNNSCALE_WATCHED``, of the process ``PID``:

    PID.name   what the runtime calls the worker, once it does
    PID.ask    to be answered by PID.tell: what its threads are in, as the runtime publishes it
    PID.kill   holds the name of a stage, in which the process is to be killed
"""

import os
import re
import signal
import sys
import threading
import time
from multiprocessing import current_process


def watch() -> None:
    file = os.path.join(os.environ["GNNSCALE_WATCHED"], str(os.getpid()))
    named = False
    while True:
        time.sleep(0.0005)
        if not named and current_process().name != "MainProcess":
            write(f"{file}.name", current_process().name)
            named = True
        if os.path.exists(f"{file}.ask"):
            write(f"{file}.tell", "\n".join(running()))
            os.remove(f"{file}.ask")
        if os.path.exists(f"{file}.kill"):
            with open(f"{file}.kill") as stream:
                stage = stream.read()
            while stage not in running():
                time.sleep(0.0002)
            os.kill(os.getpid(), signal.SIGKILL)


def running() -> list[str]:
    heartbeat = sys.modules.get("gnnscale.distributed.heartbeat")
    # Missing while the module is being imported.
    activities = getattr(heartbeat, "CURRENT_ACTIVITIES", None)
    return ["start"] if activities is None else sorted(set(activities.values()))


def write(file: str, text: str) -> None:
    with open(f"{file}.partial", "w") as stream:
        stream.write(text)
    os.rename(f"{file}.partial", file)


def start() -> None:
    threading.Thread(target=watch, name="watch", daemon=True).start()


# A server that forks workers should have no thread; each of its children starts its own.
os.register_at_fork(after_in_child=start)
if not re.search("fork_?server", " ".join(sys.orig_argv)):
    start()
