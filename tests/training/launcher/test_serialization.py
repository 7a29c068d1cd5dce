"""What a run uses reaches its workers by name, from wherever a user may define it."""

import os
import pickle
import subprocess
import sys
from functools import partial
from multiprocessing import spawn
from pathlib import Path
from typing import Any

import own_layers
import pytest
from one_line import one_line

from gnnscale.core.config.user_code import load_named
from gnnscale.nn.scatter_gather import Custom
from gnnscale.training.launcher.serialization import dump, load, program_data

pytestmark = pytest.mark.timeout(120)

PROGRAM = Path(__file__).parents[1] / "programs" / "own_program.py"


def test_there_and_back() -> None:
    config = Custom(functions=own_layers.MaxPooling, hidden=8)
    assert load(dump(config), {}) == config
    assert load(dump({"a": [1, 2.5, None, len]}), {}) == {"a": [1, 2.5, None, len]}


@pytest.mark.long
def test_code_that_options_have_named(tmp_path) -> None:
    """Another process loads it from its file, and what lies beside it."""
    (tmp_path / "beside_by_name.py").write_text("class Base: ...\n")
    (tmp_path / "part.py").write_text(
        "from beside_by_name import Base\nclass Part(Base):\n    def __init__(self): self.n = 3\n"
    )
    part = load_named(f"{tmp_path}/part.py:Part", option="sampler")()
    assert type(load(dump(part), {})) is type(part)
    program = (
        "import sys; from gnnscale.training.launcher.serialization import load;"
        "print(load(sys.stdin.buffer.read(), {}).n)"
    )
    done = subprocess.run([sys.executable, "-c", program], input=dump(part), capture_output=True)
    assert (done.stdout, done.stderr) == (b"3\n", b"")


def test_what_has_no_name_is_refused_in_one_line(monkeypatch) -> None:
    class Local(own_layers.MaxPooling):
        pass

    for given, message in [
        (Custom(functions=Local), ["Local: expected a class or function at the top level"]),
        (partial(lambda: 0), ["<lambda>: expected a class or function", "import by name"]),
        ((each for each in "ab"), ["options cannot be sent to workers: cannot pickle"]),
    ]:
        with one_line(*message):
            dump(given)
    # Of a class that its module no longer has.
    config = Custom(functions=own_layers.MaxPooling)
    monkeypatch.setattr(own_layers, "MaxPooling", own_layers.PlainMean)
    with one_line("not the same object as own_layers.MaxPooling"):
        dump(config)


def test_the_program_is_what_python_was_started_with(monkeypatch) -> None:
    mine = ["mine", "epochs=3"]
    for main, is_one in (
        ({"init_main_from_path": str(PROGRAM), "sys_argv": mine}, True),
        ({"init_main_from_name": "gnnscale.__main__", "sys_argv": mine}, True),
        ({"init_main_from_path": "-c", "sys_argv": ["-c"]}, False),  # a session without a file
    ):
        monkeypatch.setattr(spawn, "get_preparation_data", lambda name, main=main: {**main, "n": 0})
        assert program_data() == (main if is_one else {})


def run(stores: Path, *command: object, stdin: str | None = None) -> Any:
    options: dict[str, Any] = {"env": os.environ | {"GNNSCALE_HOME": str(stores)}, "input": stdin}
    line = [sys.executable, *map(str, command)]
    return subprocess.run(line, **options, capture_output=True, text=True, timeout=100)


@pytest.mark.long
def test_a_layer_of_the_program_itself(stores, tmp_path) -> None:
    done = run(stores, PROGRAM, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    # Workers have imported the program, and have not run what is behind its last line but one.
    assert done.stdout.count("trained Own to") == 1
    assert "_target_: __main__.Own" in (tmp_path / "run" / "config.yaml").read_text()


@pytest.mark.long
def test_a_program_that_trains_whenever_it_is_imported(stores, tmp_path) -> None:
    program = tmp_path / "unguarded.py"
    program.write_text(PROGRAM.read_text().replace('if __name__ == "__main__":', "if True:"))
    done = run(stores, program, tmp_path / "run")
    assert done.returncode == 1
    assert "the program starts a run when workers import it" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "run").exists()


@pytest.mark.integration
def test_a_layer_of_an_interactive_session(stores, tmp_path) -> None:
    done = run(stores, "-", tmp_path / "run", stdin=PROGRAM.read_text())
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert "__main__.Own: workers cannot import it from an interactive session" in line
    assert not (tmp_path / "run").exists()


def test_a_program_is_imported_only_where_something_of_it_is_named() -> None:
    content = pickle.dumps(len)
    assert load(content, {"init_main_from_path": "/nowhere.py"}) is len
