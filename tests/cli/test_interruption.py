"""A command that is interrupted: at once, while native code runs, or while it clears up."""

import os
import pty
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from tiny_runs import TINY

IN_NATIVE_CODE = """
    import ctypes
    import sys
    from pathlib import Path

    from gnnscale.cli import interruption
    from gnnscale.core.artifact.files import new_folder
    from gnnscale.core.progress import track

    interruption._PATIENCE_S = 0.1
    interruption.interrupt_on_signals()
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

    from gnnscale.cli.interruption import interrupt_on_signals

    interrupt_on_signals()
    try:
        print("waiting", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        print("clearing up", flush=True)
        sys.stdin.readline()
        Path(sys.argv[1]).touch()
"""


@pytest.fixture(autouse=True)
def hang_ups_are_heard() -> Iterator[None]:
    """Let processes hear SIGHUP, as they do unless nohup started the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def start(script: str, *arguments: object, errors: int | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True)


@pytest.mark.long
def test_native_code_is_not_waited_for(tmp_path: Path) -> None:
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
            process.send_signal(signal.SIGTERM)
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


IMPORTING = """
    import sys
    import time

    from gnnscale.cli import interruption

    sys.path.insert(0, sys.argv[1])
    interruption._PATIENCE_S = 2.0
    interruption.interrupt_on_signals()
    try:
        import imported
        time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_import_is_finished_before_it_is_interrupted(tmp_path, number) -> None:
    (tmp_path / "imported.py").write_text(
        textwrap.dedent("""
            import sys
            try:
                print("importing", flush=True)
                sys.stdin.readline()
            except KeyboardInterrupt:
                print("inside", flush=True)
            print("imported", flush=True)
        """)
    )
    with start(IMPORTING, tmp_path) as process:
        try:
            assert process.stdout.readline() == "importing\n"
            process.send_signal(number)
            time.sleep(0.5)
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.read() == "imported\ninterrupted\n"
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()


def test_an_import_that_takes_seconds_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "imported.py").write_text("print('importing', flush=True)\ninput()\n")
    with start(IMPORTING, tmp_path) as process:
        try:
            assert process.stdout.readline() == "importing\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()


IGNORING = """
    import os
    import signal
    import sys

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.execv(sys.executable, [sys.executable, "-m", "gnnscale", *sys.argv[1:]])
"""
COMMANDS = {
    "train": ("train", *TINY, "epochs=100000"),
    "prepare": ("prepare", "dataset.num_vertices=200000", "dataset.num_edges=20000000"),
    "doctor": ("doctor", "calibrate=true"),
}


#: Becomes the leader of a session on its terminal, which then gets SIGHUP once that is closed.
LEADING = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.write(1, b"x")
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def wait_until_gone(folder: Path) -> None:
    until = time.monotonic() + 30
    while os.listdir(folder) and time.monotonic() < until:
        time.sleep(0.1)
    assert os.listdir(folder) == []


def places(tmp_path: Path) -> Mapping[str, str]:
    """An environment whose temporary folder, home of stores and working directory are empty."""
    for name in ("tmp", "home", "work"):
        (tmp_path / name).mkdir()
    return {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "GNNSCALE_HOME": str(tmp_path / "home")}


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "after_s"), [("train", 0.3), ("train", 3.0), ("prepare", 3.0), ("doctor", 3.0)]
)
def test_a_closed_terminal_interrupts_from_the_first_moment(name, after_s, tmp_path) -> None:
    screen, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", LEADING, "-m", "gnnscale", *COMMANDS[name]],
        cwd=tmp_path / "work",
        env=places(tmp_path),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    ) as process:
        os.close(terminal)
        try:
            os.read(screen, 1)  # Python has come to run the program
            time.sleep(after_s)
            os.close(screen)
            # Before its first moment there is nothing to clear up.
            assert process.wait(timeout=60) in (130, -signal.SIGHUP)
        finally:
            process.kill()
    wait_until_gone(tmp_path / "tmp")
    left = [file for file in (tmp_path / "home").rglob("*") if "partial" in file.name]
    assert left == []
    for folder in (tmp_path / "work").glob("outputs/*/*"):
        assert name == "train"
        # An end in an import that takes seconds leaves no summary; the run can be resumed.
        assert (folder / "config.yaml").is_file()
        summary = folder / "summary.json"
        assert not summary.exists() or "interrupted" in summary.read_text()


@pytest.mark.integration
def test_what_nohup_started_continues_without_a_terminal(tmp_path: Path) -> None:
    arguments = ("train", *TINY, "epochs=20", "output=run")
    command = [sys.executable, "-c", textwrap.dedent(IGNORING), *arguments]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            while not (tmp_path / "run").is_dir():
                time.sleep(0.05)
            process.send_signal(signal.SIGHUP)
            _, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert "completed" in (tmp_path / "run" / "summary.json").read_text()
