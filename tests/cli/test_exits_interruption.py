"""A command that is interrupted while native code runs, or while it clears up."""

import os
import pty
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest

IN_NATIVE_CODE = """
    import ctypes
    import sys
    from pathlib import Path

    from gnnscale.cli import exits
    from gnnscale.artifact.files import new_folder
    from gnnscale.core.progress import track

    exits._PATIENCE_S = 0.1
    exits.interrupt_on_signals()
    with new_folder(Path(sys.argv[1])) as partial, track("drawing edges"):
        (partial / "file").write_text("half")
        lock, libc = ctypes.create_string_buffer(256), ctypes.CDLL(None)
        libc.pthread_mutex_lock(lock)
        print("waiting", flush=True)
        libc.pthread_mutex_lock(lock)  # for ever, whatever signals come
"""

CLEARING_UP = """
    import sys
    import time
    from pathlib import Path

    from gnnscale.cli.exits import interrupt_on_signals

    interrupt_on_signals()
    try:
        print("waiting", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        print("clearing up", flush=True)
        sys.stdin.readline()
        Path(sys.argv[1]).touch()
"""


def start(script: str, *arguments: object, errors: int | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_native_code_is_not_waited_for(tmp_path: Path, number: signal.Signals) -> None:
    screen, terminal = pty.openpty()
    with start(IN_NATIVE_CODE, tmp_path / "store", errors=terminal) as process:
        os.close(terminal)
        try:
            assert process.stdout.readline() == "waiting\n"
            assert os.listdir(tmp_path) == [".store.partial"]
            shown = b""
            while b"drawing edges" not in shown:  # after a second
                shown += os.read(screen, 4096)
            assert b"\x1b[?25l" in shown
            process.send_signal(number)
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()
    with suppress(OSError):  # which is the end of what a terminal is told
        while True:
            shown += os.read(screen, 4096)
    os.close(screen)
    hidden, _, after = shown.rpartition(b"\x1b[?25h")
    assert b"\x1b[?25l" in hidden
    assert after.startswith(b"\r\ninterrupted\r\n")
    assert b"\x1b[?25l" not in after
    assert os.listdir(tmp_path) == []


def test_a_second_signal_does_not_interrupt_what_clears_up(tmp_path: Path) -> None:
    with start(CLEARING_UP, tmp_path / "done") as process:
        try:
            assert process.stdout.readline() == "waiting\n"
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "clearing up\n"
            process.send_signal(signal.SIGTERM)
            process.communicate("\n", timeout=60)
            assert process.returncode == 0
        finally:
            process.kill()
    assert (tmp_path / "done").exists()
