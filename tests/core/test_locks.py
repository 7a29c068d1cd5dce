import fcntl
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from gnnscale.core import locks
from gnnscale.core.errors import ConfigError
from gnnscale.core.files import whole_file, write_atomically
from gnnscale.core.locks import LOCK_FILE, KnownFolder, create_locked, sole_maker, sole_writer

_HOLD = """
import signal, sys, time
from pathlib import Path
from gnnscale.core.locks import sole_writer
# A shell lets what it starts in the background ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
with sole_writer(Path(sys.argv[1]), option="output"):
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def another_writer(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", _HOLD, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def enter(folder: Path, **options: float) -> None:
    with sole_writer(folder, option="resume", **options):
        assert (folder / LOCK_FILE).read_text() == f"{os.getpid()} {socket.gethostname()}\n"


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_process_that_ends_in_any_way_releases_its_folder(tmp_path, number, caplog) -> None:
    with another_writer(tmp_path) as process, ThreadPoolExecutor(1) as pool:
        with pytest.raises(ConfigError) as caught:
            enter(tmp_path)
        writer = f"process {process.pid} on {socket.gethostname()}"
        assert str(caught.value) == (
            f"resume={tmp_path}: is being written by {writer}; wait until it ends, or end it"
        )
        waiting = pool.submit(enter, tmp_path, wait_s=30)
        time.sleep(0.3)
        assert not waiting.done()
        process.send_signal(number)
        process.wait()
        waiting.result()
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    assert writer in caplog.text
    assert not list(tmp_path.iterdir())


def test_one_of_several_writes(tmp_path: Path) -> None:
    """A writer that comes at any moment is refused, or writes alone."""
    inside: list[int] = []

    def write(number: int) -> str:
        try:
            with sole_writer(tmp_path, option="output"):
                inside.append(number)
                assert inside == [number]
                time.sleep(0.001)
                inside.remove(number)
        except ConfigError as error:
            return str(error)
        return "done"

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(write, range(200)))
    refused = f"output={tmp_path}: is being written by "
    assert all(answer == "done" or answer.startswith(refused) for answer in answers)
    assert "done" in answers
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_of_the_writer_holds_nothing(tmp_path: Path) -> None:
    with sole_writer(tmp_path, option="output"):
        reader, written = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(reader, 1)
            os._exit(0)
    enter(tmp_path)
    with sole_writer(tmp_path, option="output"), pytest.raises(ConfigError, match="is being writt"):
        enter(tmp_path)
    os.write(written, b"x")
    os.waitpid(child, 0)
    os.close(reader)
    os.close(written)


def test_a_folder_in_which_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"{LOCK_FILE}: No such file or directory$"):
        enter(tmp_path / "none")
    (tmp_path / LOCK_FILE).mkdir()
    with pytest.raises(ConfigError, match=rf"{LOCK_FILE}: Is a directory$"):
        enter(tmp_path)


def test_a_writer_that_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_WRITER_TIMEOUT_S", 0.0)
    with sole_writer(tmp_path, option="output"):
        for content in ("", "x" * 5000, "1 host\x1b[2J\n", "12\n", "1 a b\n"):
            (tmp_path / LOCK_FILE).write_text(content)
            with pytest.raises(ConfigError, match=r"is being written by another process; wait unt"):
                enter(tmp_path)


def link(file: Path, elsewhere: Path) -> None:
    os.link(elsewhere, file)


@pytest.mark.parametrize("make", [Path.symlink_to, link, lambda file, _: os.mkfifo(file)])
def test_nothing_is_written_through_a_file_that_is_there(tmp_path, make) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    make(tmp_path / LOCK_FILE, elsewhere)
    make(tmp_path / ".file.tmp", elsewhere)
    enter(tmp_path)
    write_atomically(tmp_path / "file", "new")
    assert (elsewhere.read_text(), (tmp_path / "file").read_text()) == ("mine", "new")
    assert len(list(tmp_path.iterdir())) == 2


def test_two_writers_of_a_file_leave_it_whole(tmp_path: Path) -> None:
    """Each waits for the other, so that no part of one ends up in the file of the other."""
    file = tmp_path / "file"

    def write(letter: str) -> None:
        for _ in range(100):
            write_atomically(file, iter([letter.encode() * 100] * 10))
            assert set(file.read_text()) in ({"a"}, {"b"}, {"c"})
            assert file.stat().st_size == 1000

    with ThreadPoolExecutor(3) as pool:
        tasks = [pool.submit(write, letter) for letter in "abc"]
    assert [task.exception() for task in tasks] == [None] * 3
    assert list(tmp_path.iterdir()) == [file]
    file = tmp_path / "rows.npy"
    with whole_file(file) as stream:
        stream.write(b"first")
        message = rf"^{file}: is being written by another process; wait until it ends$"
        with pytest.raises(ConfigError, match=message), whole_file(file, wait=False):
            raise AssertionError("never here")
    assert file.read_bytes() == b"first"
    with whole_file(file, wait=False) as stream:
        stream.write(b"second")
    assert file.read_bytes() == b"second"


def test_one_process_at_a_time_makes_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "parts" / "graph"
    made: list[int] = []

    def make(number: int) -> None:
        with sole_maker(folder):
            made.append(number)
            time.sleep(0.01)
            assert made[-1] == number

    with ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(make, number) for number in range(8)]
    assert [task.exception() for task in tasks] == [None] * 8
    assert not list(folder.parent.iterdir())


def test_a_folder_that_cannot_be_made_is_not_locked(tmp_path, monkeypatch, caplog) -> None:
    def fail(error: OSError) -> None:
        raise error

    with monkeypatch.context() as patch:
        refused = PermissionError(13, "Permission denied")
        patch.setattr(locks, "create_locked", lambda *_, **__: fail(refused))
        with sole_maker(tmp_path / "graph"):
            pass
    # Nor is one in a file system without locks.
    without = OSError(38, "Function not implemented")
    monkeypatch.setattr(fcntl, "flock", lambda *_: fail(without))
    descriptor = create_locked(tmp_path / "file", wait=True)
    assert descriptor is not None
    locks.release(descriptor)
    assert "file: its file system has no locks (Function not implemented)" in caplog.text


def moved(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def replaced(folder: Path) -> None:
    moved(folder)
    folder.mkdir()
    (folder / LOCK_FILE).write_text("4711 elsewhere\n")


def removed(folder: Path) -> None:
    (folder / LOCK_FILE).unlink()
    folder.rmdir()


def unlocked(folder: Path) -> None:
    (folder / LOCK_FILE).unlink()
    with sole_writer(folder, option="output"):
        pass


@pytest.mark.parametrize("change", [moved, replaced, removed, unlocked])
def test_a_folder_that_another_command_may_write_by_now(tmp_path, change) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with sole_writer(folder, option="output"):
        known = KnownFolder(folder)
        known.check()
        change(folder)
        with pytest.raises(ConfigError, match=r"was moved, or lost its \.lock, while this"):
            known.check()


def test_folders_that_nobody_else_writes(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    known = KnownFolder(folder)
    folder.mkdir()
    known.check()
    (folder / LOCK_FILE).touch()
    known.check()
    # As after a mount: some file systems number their files again.
    folder, copy = tmp_path / "run", tmp_path / "copy"
    folder.mkdir()
    with sole_writer(folder, option="output"):
        known = KnownFolder(folder)
        shutil.copytree(folder, copy)
        folder.rename(tmp_path / "before")
        copy.rename(folder)
        known.check()
