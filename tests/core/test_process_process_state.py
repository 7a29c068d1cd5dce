import os
import subprocess
import sys
from pathlib import Path

from gnnscale.core.process import has_ended, own_process, process_stat, start_of


def test_processes_that_run_and_end() -> None:
    number, start = own_process()
    assert number == os.getpid()
    assert start == start_of(number) > 0
    assert process_stat(number)[0] == "R"
    assert not has_ended(number, start)
    assert has_ended(number, start + 1)  # another one had the number before
    # A name with spaces and a parenthesis, as anybody may give a process.
    program = "open('/proc/self/comm', 'w').write('a) Z 0 b'); print(flush=True); input()"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert Path(f"/proc/{process.pid}/comm").read_text() == "a) Z 0 b\n"
        start = start_of(process.pid)
        assert start >= own_process()[1]
        assert not has_ended(process.pid, start)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert process_stat(process.pid)[0] == "Z"  # nobody has waited for it yet
        assert has_ended(process.pid, start)
        process.wait()
        assert process_stat(process.pid) == []
        assert has_ended(process.pid, start)
        assert start_of(process.pid) == 0
