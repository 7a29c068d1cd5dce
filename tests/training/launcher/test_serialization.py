"""What a run uses reaches its workers, from wherever a user may define it."""

import os
import subprocess
import sys
import threading
import traceback
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import own_layers
import pytest
import torch
from one_line import one_line
from torch import nn

from gnnscale.core.config.imports import refuse_while_importing
from gnnscale.core.config.user_code import load_named
from gnnscale.core.errors import ConfigError
from gnnscale.nn.scatter_gather import Custom
from gnnscale.training.launcher.serialization import dump, load

pytestmark = pytest.mark.timeout(120)

PROGRAM = Path(__file__).parents[1] / "programs" / "own_program.py"


def test_there_and_back() -> None:
    config = Custom(functions=own_layers.MaxPooling, hidden=8)
    assert load(dump(config)) == config
    assert load(dump({"a": [1, 2.5, None, len]})) == {"a": [1, 2.5, None, len]}


#: A module of a program: nothing can import it by its name.
SOURCE = """
import dataclasses, enum, typing
import torch
from torch import nn

class Kind(enum.Enum):
    SUM = 1
    MEAN = 2

@dataclasses.dataclass(frozen=True)
class Options:
    scale: float = 2.0
    kind: Kind = Kind.MEAN
    names: list = dataclasses.field(default_factory=list)

class Sizes(typing.NamedTuple):
    width: int = 3

OPTIONS = Options()

def scaled(x):
    return x * OPTIONS.scale

class Base(nn.Module):
    def __init__(self, width=Sizes().width):
        super().__init__()
        self.linear = nn.Linear(width, 2)
        self.act = lambda x: x.relu()

class Net(Base):
    def forward(self, x):
        assert len(dataclasses.fields(OPTIONS)) == 3
        assert dataclasses.replace(OPTIONS, scale=3.0).kind is Kind.MEAN
        return self.act(self.linear(scaled(x)))

def make(factor):
    class Local(Net):
        def forward(self, x):
            return super().forward(x) * factor
    return Local

def fail():
    raise ValueError("mine")
"""


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module that other processes cannot import, as a notebook or a script is."""
    module = ModuleType("no_such_program")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(SOURCE, "/cells/1.py", "exec"), module.__dict__)
    return module


@pytest.mark.long
def test_what_a_program_defines_works_elsewhere(program) -> None:
    """Weights, globals, helper functions, lambdas and closures come along to a fresh process.

    What comes back is of the program's own classes, as the device of a plan in a worker's message.
    """
    command = (
        "import sys, torch; from gnnscale.training.launcher.serialization import dump, load;"
        "functions, x, sent = load(sys.stdin.buffer.read());"
        "sys.stdout.buffer.write(dump(([function(x) for function in functions], sent)))"
    )
    x = torch.randn(5, 3)
    functions = [program.Net(), program.make(3.0)(), partial(program.scaled)]
    sent = (program.Options(scale=3.0), program.Net)
    content = dump((functions, x, sent))
    done = subprocess.run([sys.executable, "-c", command], input=content, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    computed, returned = load(done.stdout)
    for function, found in zip(functions, computed, strict=True):
        torch.testing.assert_close(found, function(x), rtol=0, atol=0)
    assert returned == sent


def test_nothing_is_left_registered_with_cloudpickle(program) -> None:
    cloudpickle.register_pickle_by_value(own_layers)
    try:
        before = cloudpickle.list_registry_pickle_by_value()
        assert load(dump(program.make(2.0)))().act(torch.ones(1)) == 1
        with pytest.raises(ConfigError):
            dump([program.Net, threading.Lock()])
        assert cloudpickle.list_registry_pickle_by_value() == before
    finally:
        cloudpickle.unregister_pickle_by_value(own_layers)


def test_a_traceback_names_the_file_of_the_code(program) -> None:
    with pytest.raises(ValueError, match="mine") as caught:
        load(dump(program.fail))()
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.name, last.lineno) == ("/cells/1.py", "fail", 43)


@pytest.mark.long
def test_code_that_options_have_named(tmp_path) -> None:
    """Another process loads it from its file, and what lies beside it."""
    (tmp_path / "beside_by_name.py").write_text("class Base: ...\n")
    (tmp_path / "part.py").write_text(
        "from beside_by_name import Base\nclass Part(Base):\n    def __init__(self): self.n = 3\n"
    )
    part = load_named(f"{tmp_path}/part.py:Part", option="sampler")()
    assert type(load(dump(part))) is type(part)
    program = (
        "import sys; from gnnscale.training.launcher.serialization import load;"
        "print(load(sys.stdin.buffer.read()).n)"
    )
    done = subprocess.run([sys.executable, "-c", program], input=dump(part), capture_output=True)
    assert (done.stdout, done.stderr) == (b"3\n", b"")


class Holder(nn.Module):
    """A module with an attribute of any kind."""

    def __init__(self, part: Any = None, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.inner, self.part = inner, part


LOCK = threading.Lock()


def uses_lock(x: torch.Tensor) -> torch.Tensor:
    with LOCK:
        return x


def fails_to_reduce(*_: Any) -> Any:
    raise ArithmeticError("never\ncopied")


def test_what_cannot_be_sent_is_named_in_one_line(tmp_path) -> None:
    cycle: list[Any] = [LOCK]
    cycle.append(cycle)
    file = (tmp_path / "out.txt").open("w")
    odd = type("Odd", (), {"__reduce__": fails_to_reduce})()
    for value, begins, reason in [
        ({"module": Holder(LOCK)}, "module.part", "cannot pickle '_thread.lock' object"),
        ({"module": Holder(inner=Holder(LOCK))}, "module.inner.part", "lock"),
        ({"module": nn.Sequential(Holder(), Holder(file))}, "module.1.part", "opened for reading"),
        ({"loss": partial(lambda: LOCK)}, "loss", "lock"),
        ({"loss": {"function": [1, cycle]}}, "loss.function.1.0", "lock"),
        ({"x": (each for each in "ab")}, "x", "cannot pickle 'generator' object"),
        ({"x": odd}, "x", "ArithmeticError: never"),
        (LOCK, "<unlocked _thread.lock", "lock"),
    ]:
        words = (reason, "expected a value that workers can get a copy of", "in forward")
        with one_line(*words, begins=begins):
            dump(value)
    file.close()


def test_a_global_that_cannot_be_sent_is_named(program) -> None:
    program.uses_lock, program.LOCK = uses_lock, LOCK
    exec("class Locked(Net):\n    def forward(self, x):\n        return LOCK", program.__dict__)
    for value in (program.Locked, program.Locked()):
        with one_line("forward.LOCK: expected a value that workers can get a copy of"):
            dump({"module": value})


def test_a_class_that_its_module_has_no_more_is_sent_by_value(monkeypatch) -> None:
    config = Custom(functions=own_layers.MaxPooling)
    monkeypatch.setattr(own_layers, "MaxPooling", own_layers.PlainMean)
    assert load(dump(config)).functions.__name__ == "MaxPooling"


def test_a_module_that_starts_a_run_is_refused(tmp_path, monkeypatch) -> None:
    """Otherwise each worker would start workers."""
    (tmp_path / "starts_runs.py").write_text(
        "from gnnscale.core.config.imports import refuse_while_importing\n"
        "class Net: ...\n"
        "refuse_while_importing()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import starts_runs

    content = dump(starts_runs.Net)
    del sys.modules["starts_runs"]
    with one_line("starts a run whenever it is imported", 'if __name__ == "__main__":'):
        load(content)
    refuse_while_importing()  # this thread imports nothing any more


def run(stores: Path, *command: object, stdin: str | None = None) -> Any:
    options: dict[str, Any] = {"env": os.environ | {"GNNSCALE_HOME": str(stores)}, "input": stdin}
    line = [sys.executable, *map(str, command)]
    return subprocess.run(line, **options, capture_output=True, text=True, timeout=100)


@pytest.mark.integration
@pytest.mark.parametrize("way", ["file", "stdin", "module"])
def test_a_program_without_a_guard_trains_its_own_code(way: str, stores, tmp_path) -> None:
    """Workers do not import it: it says once what it has trained."""
    source = PROGRAM.read_text().replace('if __name__ == "__main__":', "if True:")
    (tmp_path / "unguarded.py").write_text(source)
    command = {
        "file": (tmp_path / "unguarded.py", tmp_path / "run"),
        "stdin": ("-", tmp_path / "run"),
        "module": ("-m", "unguarded", tmp_path / "run"),
    }[way]
    stdin = source if way == "stdin" else None
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        done = run(stores, *command, stdin=stdin)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained Own to") == 1
    assert "_target_: __main__.Own" in (tmp_path / "run" / "config.yaml").read_text()


def doubled(x: torch.Tensor, factor: float | None) -> torch.Tensor:
    return 2 * x if factor is None else factor * x


def test_a_module_of_torch_fx_keeps_its_graph() -> None:
    """Traced anew, ``doubled`` would get a factor that is not None."""
    graph = torch.fx.Graph()
    x, factor = graph.placeholder("x"), graph.placeholder("factor", default_value=None)
    graph.output(graph.call_module("linear", (graph.call_function(doubled, (x, factor)),)))
    module = torch.fx.GraphModule({"linear": nn.Linear(3, 2)}, graph)
    copy = load(dump({"module": module}))["module"]
    rows = torch.ones(4, 3)
    assert torch.equal(copy(rows), module(rows))
    assert copy.graph.owning_module is copy
