import sys
from collections.abc import Iterator
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
