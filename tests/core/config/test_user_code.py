import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gnnscale.cache import CachePlannerConfig
from gnnscale.core.config import user_code
from gnnscale.core.config.user_code import code_digest, default_options, load_class, name_of_code
from gnnscale.core.errors import ConfigError
from gnnscale.partition import Hash, PartitionerConfig


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    before = set(sys.modules)
    yield tmp_path
    for each in set(sys.modules) - before:
        del sys.modules[each]


def load(name: str) -> Any:
    return user_code.load_named(name, option="model.module")


def test_modules_and_files_are_found(folder: Path) -> None:
    (folder / "my_models_a.py").write_text("class SAGE:\n    class Inner: ...\n")
    assert str(folder) not in sys.path
    assert load("my_models_a:SAGE").__name__ == "SAGE"
    assert load("my_models_a:SAGE.Inner").__qualname__ == "SAGE.Inner"
    assert load(name_of_code(load("my_models_a:SAGE.Inner"))).__name__ == "Inner"
    # An installed package comes before a file of the same name.
    (folder / "wave.py").write_text("Wave_read = None\n")
    assert "wave" not in sys.modules
    assert load("wave:Wave_read").__name__ == "Wave_read"
    inside = folder / "deep"
    inside.mkdir()
    (inside / "beside_b.py").write_text("class Base: ...\n")
    (inside / "one.py").write_text("from beside_b import Base\nclass Own(Base): ...\n")
    found = load("deep/one.py:Own")
    assert found.__mro__[1].__name__ == "Base"
    assert load(f"{inside}/one.py:Own") is found


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("SAGE", "expected MODULE:NAME, as in mypkg.models:SAGE, or FILE.py:NAME"),
        ("no_such_module:SAGE", "no module no_such_module, neither installed nor in "),
        ("json:SAGE", "__init__.py has no SAGE"),
        ("math:pi", "expected a class or a function, got a float"),
        ("none.py:SAGE", "no such file, "),
        ("needs:SAGE", "importing it fails with ModuleNotFoundError: No module named 'absent'"),
        ("fails:SAGE", "importing it fails with ZeroDivisionError: division by zero ("),
        ("fails.py:SAGE", "importing it fails with ZeroDivisionError: division by zero ("),
        ("leaves:SAGE", "importing it fails with SystemExit: 3 ("),
        ("broken:SAGE", "importing it fails with SyntaxError: "),
    ],
)
def test_what_cannot_be_loaded_is_one_line(folder: Path, name: str, said: str) -> None:
    (folder / "needs.py").write_text("import absent\n")
    (folder / "fails.py").write_text("x = 1\n1 / 0\n")
    (folder / "leaves.py").write_text("raise SystemExit(3)\n")
    (folder / "broken.py").write_text("class\n")
    with pytest.raises(ConfigError) as error:
        load(name)
    assert str(error.value).startswith(f"model.module={name}: ")
    assert said in str(error.value)
    if "ZeroDivision" in said:
        assert "fails.py:2)" in str(error.value)


PART = """
from dataclasses import dataclass, field
from pathlib import Path
from gnnscale.partition import Hash

@dataclass(frozen=True, kw_only=True)
class Mine(Hash):
    rounds: int
    sizes: list[int] = field(default_factory=lambda: [2, 3])
    place: Path = Path("x")
    rate: float | None = None

    class Inner: ...
"""


@pytest.fixture
def part(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(user_code, "_allowed", set())
    (folder / "part.py").write_text(PART)
    return "part.py:Mine"


def test_a_class_of_options_is_imported_if_it_was_named(part: str) -> None:
    before = set(sys.modules)
    with pytest.raises(ConfigError, match=r"names code, .* type partitioner=part\.py:Mine"):
        load_class(part, PartitionerConfig, group="partitioner")
    assert not any(name.startswith("gnnscale_user_code") for name in {*sys.modules} - before)
    user_code.allow([part])
    found = load_class(part, PartitionerConfig, group="partitioner")
    assert (found.__name__, found.__mro__[1]) == ("Mine", Hash)
    with pytest.raises(ConfigError, match=r"code goes with partitioner, cache_planner, sampler, f"):
        load_class(part, PartitionerConfig, group="optimizer")
    with pytest.raises(ConfigError, match=r"expected a subclass of gnnscale\.cache\.base\.CachePl"):
        load_class(part, CachePlannerConfig, group="cache_planner")


def test_options_names_and_digests_of_code(part: str, folder: Path) -> None:
    assert default_options(part, group="partitioner") == {
        **{"_target_": part, "num_parts": None, "store": None},
        **{"rounds": "???", "sizes": [2, 3], "rate": None},
    }
    assert default_options("json:dumps", group="partitioner") == {"_target_": "json:dumps"}
    mine, file = load(part), folder / "part.py"
    names = [user_code.name_for_workers(each) for each in (mine, mine.Inner, Hash)]
    assert names == [f"{file}:Mine", f"{file}:Mine.Inner", None]
    assert [user_code.short_name(each) for each in (part, "accuracy")] == ["Mine", "accuracy"]
    with pytest.raises(ConfigError, match=r"model.module=3: expected MODULE:NAME"):
        user_code.check_name(3, option="model.module")
    mine = load(part)
    before = code_digest(mine)
    assert before is not None
    assert code_digest(mine) == before
    (folder / "part.py").write_text(PART + "# more\n")
    assert code_digest(mine) != before
    assert code_digest(Hash) is None


def test_code_that_a_program_passes_in_threads() -> None:
    """Each thread gets its own function of a name that two use; workers get it by this name."""
    meeting = threading.Barrier(2)

    def train(factor: int) -> tuple[str, int, dict[str, Any]]:
        def loss() -> int:
            return factor

        name = user_code.pass_code(loss)
        meeting.wait()
        return name, load(name)(), user_code.code_for_workers([name, "accuracy", None, 3])

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(train, [1, 2]))
    names = {name for name, _, _ in found}
    assert [value for _, value, _ in found] == [1, 2]
    assert [code[name]() for name, _, code in found] == [1, 2]
    (name,) = names
    with pytest.raises(ConfigError, match=r"is defined inside a function; pass it from a program"):
        load(name)  # this thread has passed none


def test_names_of_code_that_only_its_program_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def local() -> None: ...

    name, main = name_of_code(local), sys.modules["__main__"]
    assert name_of_code(partial(partial(local), 3)) == name
    assert user_code.check_name(name, option="loss.function")[0] == __name__
    assert (user_code.short_name(name), user_code.short_name("a:B.C")) == ("local", "B.C")
    own = [name, "__main__:Net", name_of_code(lambda: 0)]
    assert [*map(user_code.is_of_program, [*own, "nets:Net", "net.py:Net", 3, "gcn"])] == [
        *([True] * 3),
        *([False] * 4),
    ]
    assert [*map(user_code.argument, [*own, "nets:Net"])] == ["local", "Net", "...", "'nets:Net'"]
    call = user_code.load_call(Path("it's"), {"model": {"module": "__main__:Net"}})
    assert call == """gnnscale.load("it's", module=Net)"""
    assert user_code.load_call(Path("a"), {"model": {"hidden": 8}}) == "gnnscale.load('a')"
    assert user_code.is_moved("nets:Net", "__main__:Net")
    assert not user_code.is_moved("nets:Net", "other:Net")
    assert not user_code.is_moved("__main__:Net", "__main__:Other")
    # What the program has under this name is not sent twice, and may be defined again.
    monkeypatch.setattr(main, "score", local, raising=False)
    monkeypatch.setattr(local, "__module__", "__main__")
    monkeypatch.setattr(local, "__qualname__", "score")
    assert load(user_code.pass_code(local)) is local
    monkeypatch.setattr(main, "score", len)
    assert load("__main__:score") is len
    assert user_code.code_for_workers(["__main__:score", "json:dumps"]) == {"__main__:score": len}


def test_a_class_that_a_notebook_defines_again_has_another_digest() -> None:
    def define(body: str) -> Any:
        names = {"__name__": "__main__"}
        exec(f"class Mine:\n    def assign(self, graph):\n        {body}", names)
        return names["Mine"]

    bodies = ("return 1", "return 2", "return len(graph)", "return lambda: 1", "return lambda: 2")
    digests = [code_digest(define(body)) for body in bodies]
    assert len(set(digests)) == len(bodies)
    assert digests == [code_digest(define(body)) for body in bodies]
