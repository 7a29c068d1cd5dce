import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gnnscale.core.errors import ConfigError
from gnnscale.options.user_code import check_name, load_named, name_of_code


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory that is not on Python's path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    before = set(sys.modules)
    yield tmp_path
    for each in set(sys.modules) - before:
        del sys.modules[each]


def load(name: str) -> Any:
    return load_named(name, option="model.module")


def test_modules_are_found_in_the_working_directory(folder: Path) -> None:
    (folder / "my_models_a.py").write_text("class SAGE:\n    class Inner: ...\n")
    assert str(folder) not in sys.path
    assert load("my_models_a:SAGE").__name__ == "SAGE"
    assert load("my_models_a:SAGE.Inner").__qualname__ == "SAGE.Inner"
    assert load(name_of_code(load("my_models_a:SAGE.Inner"))).__name__ == "Inner"
    assert load("collections:OrderedDict").__name__ == "OrderedDict"


def test_an_installed_package_comes_before_a_file_of_the_same_name(folder: Path) -> None:
    (folder / "wave.py").write_text("Wave_read = None\n")
    assert "wave" not in sys.modules
    assert load("wave:Wave_read").__name__ == "Wave_read"


def test_a_file_finds_what_lies_beside_it_and_is_read_once(folder: Path) -> None:
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
        ("SAGE", "must be MODULE:NAME, as in mypkg.models:SAGE, or FILE.py:NAME"),
        (".relative:SAGE", "must be MODULE:NAME"),
        ("no_such_module:SAGE", "no module no_such_module, neither installed nor in "),
        ("json.no_such:SAGE", "no module json.no_such, neither"),
        ("json:SAGE", "__init__.py has no SAGE"),
        ("math:pi", "is a float, must be a class or a function"),
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


def test_a_name_is_text() -> None:
    with pytest.raises(ConfigError, match=r"model.module=3: must be MODULE:NAME"):
        check_name(3, option="model.module")
