import os
import signal
import subprocess
import sys

import pytest
from fault_injection.processes import descendants, elapsed
from fault_injection.watched import Watched

#: Stands in for a server that forks a worker, which loads for ever.
SERVER = """
import os, sys, threading, types
from multiprocessing import current_process

heartbeat = sys.modules["gnnscale.distributed.heartbeat"] = types.ModuleType("heartbeat")
heartbeat.CURRENT_ACTIVITIES = {}
if os.fork() == 0:
    current_process().name = "cpu:0"
    heartbeat.CURRENT_ACTIVITIES[threading.get_ident()] = "load"
    threading.Event().wait(120)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.fixture
def server(watched):
    command, pipe = [sys.executable, "-c", SERVER], subprocess.PIPE
    with subprocess.Popen(command, env=watched.environment, stdout=pipe, text=True) as process:
        yield process
        for each in descendants(process.pid):
            os.kill(each.pid, signal.SIGKILL)
        process.kill()


@pytest.fixture
def watched(tmp_path):
    return Watched(tmp_path, dict(os.environ))


def find_worker(watched, server):
    for seconds in elapsed():
        for each in descendants(server.pid):
            if watched.name(each.pid) == "cpu:0":
                return each
        assert seconds < 60
    raise AssertionError


def test_a_forked_worker_tells_its_stage_and_is_killed_in_it(watched, server):
    worker = find_worker(watched, server)
    assert watched.name(server.pid) is None
    for seconds in elapsed():  # an answer that is late is "start"
        if watched.doing(worker.pid) == "load":
            break
        assert seconds < 60
    watched.kill_in(worker.pid, "load")
    output, _ = server.communicate(timeout=60)
    assert int(output) == -signal.SIGKILL
    assert not worker.alive
