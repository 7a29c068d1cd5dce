import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from omegaconf import OmegaConf
from one_line import one_line

from gnnscale.core.config.typed import differences, typed
from gnnscale.core.errors import ConfigError, check_choice, check_range
from gnnscale.core.stages import StageTimes
from gnnscale.nn.optim import OptimizerConfig


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float
    sizes: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Outer:
    count: int
    inner: Inner
    place: Path | None = None
    name: str = "x"


def test_builds_nested_dataclasses_and_lists_of_them() -> None:
    inner = {"rate": 1, "sizes": [25, 10]}
    result = typed(OmegaConf.create({"count": 3, "inner": inner, "place": "a/b"}), Outer)
    assert result == Outer(count=3, inner=Inner(rate=1.0, sizes=[25, 10]), place=Path("a/b"))
    assert isinstance(result.inner.rate, float)
    # Interpolations resolve where they stand.
    node = OmegaConf.create({"count": 7, "inner": {"rate": 1, "sizes": ["${count}", 2]}})
    assert typed(node, Outer).inner.sizes == [7, 2]
    # What a reference or an escape gave is not resolved again.
    texts = OmegaConf.create({"texts": [r"\${x}"], "more": {"a": [r"\\\${b}"]}})
    assert typed(texts, Nested) == Nested(texts=["${x}"], more={"a": [r"\${b}"]})
    with one_line("more: Interpolation key 'x' not found; ${ begins a reference"):
        typed(OmegaConf.create({"texts": [], "more": {"a": "${x}"}}), Nested)
    with pytest.raises(ConfigError, match="inner: required"):
        typed(OmegaConf.create({"count": 1}), Outer)
    node = OmegaConf.create({"parts": [{"rate": 1}, {"rate": 2, "sizes": [3]}]})
    assert typed(node, Several).parts == [Inner(rate=1.0), Inner(rate=2.0, sizes=[3])]
    assert typed(OmegaConf.create({"parts": []}), Several).parts == []
    for parts, message in (
        (3, "g.parts=3: expected a list of groups of options"),
        ({"rate": 1}, "g.parts="),
        ([{"rate": 1}, 2], "g.parts.1=2: expected a group of options"),
        ([{"rate": "fast"}], "g.parts.0.rate: "),
        ([{"pace": 1}], "g.parts.0.pace: unknown option"),
    ):
        with one_line(begins=message):
            typed(OmegaConf.create({"parts": parts}), Several, group="g")


@dataclass(frozen=True, kw_only=True)
class Nested:
    texts: list[str]
    more: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Several:
    parts: list[Inner]


@dataclass(frozen=True, kw_only=True)
class Counts:
    count: int = 1
    largest: int | None = None
    sizes: list[int] = field(default_factory=list)
    rate: float = 1.0
    either: int | float = 1


def test_whole_infinite_and_other_floats() -> None:
    node = OmegaConf.create({"count": 1e9, "largest": 1e3, "sizes": [1e1, 2], "rate": 2.0})
    found = typed(node, Counts)
    assert found == Counts(count=10**9, largest=1000, sizes=[10, 2], rate=2.0)
    assert all(type(each) is int for each in (found.count, found.largest, *found.sizes))
    assert type(found.rate) is float
    assert type(typed(OmegaConf.create({"either": 2.0}), Counts).either) is float
    node = OmegaConf.create({"rates": [1, float("inf")]})
    assert typed(node, Figures).rates == [1.0, float("inf")]
    with pytest.raises(ConfigError, match="rates=nan"):
        typed(OmegaConf.create({"rates": [float("nan")]}), Figures)
    # A group may be absent where its field says so.
    assert typed(OmegaConf.create({"inner": None}), Holder).inner is None
    assert typed(OmegaConf.create({"inner": {"rate": 2}}), Holder).inner == Inner(rate=2.0)
    for values, line in (
        ({"count": 1.5}, "count: Value '1.5' of type 'float' could not be converted to Integer"),
        ({"sizes": [3, 2.5]}, "sizes: "),
        ({"count": 1e300}, "count=10000000000000000525"),
        ({"count": float("inf")}, "count: Value 'inf' of type 'float' could not be converted"),
        ({"count": float("nan")}, "count: Value 'nan' of type 'float' could not be converted"),
    ):
        with one_line(begins=line):
            typed(OmegaConf.create(values), Counts)


def test_refuses_in_one_line() -> None:
    for values, message in (
        ({"count": "abc"}, "count: Value 'abc'"),
        ({"count": "???"}, "count: required"),
        ({"count": None}, "count=null: expected a value"),
        ({"count": 10**19}, "count=10000000000000000000: expected a number of 64"),
        ({"coutn": 1}, "coutn: unknown option, did you mean"),
        ({5: 1}, "5: unknown option"),
        ({"inner": {"rate": "q"}}, "inner.rate: Value 'q'"),
        ({"inner": {"rate": float("nan")}}, "inner.rate=nan: expected a finite number"),
        ({"inner": {"rate": 1, "sizes": [1, "w"]}}, "inner.sizes: Value 'w'"),
        ({"inner": {"rte": 1}}, "inner.rte: unknown option, did you mean 'inner.rate'"),
        ({"inner": 3}, "inner=3: expected a group of options, got a value"),
        ({"inner": "${inner}"}, "inner: "),
        ({"name": "a\nb"}, "name=a\\nb: holds control"),
        ({"place": ""}, "place=: expected a file or folder"),
    ):
        with one_line(begins=message):
            typed(OmegaConf.create({"count": 1, "inner": {"rate": 1}} | values), Outer)


def test_target_names_only_classes_of_the_group() -> None:
    for target, message in (
        ("os.system", "expected a class of gnnscale"),
        ("this.s", "expected a class of gnnscale"),
        ("gnnscale.nn.optim.Adamm", "no such class"),
        ("gnnscale.nowhere.Adam", "no such class"),
        ("gnnscale.__main__.main", "_target_="),
        ("gnnscale.report.terminal.RunReport", "_target_="),
        ("gnnscale.", "_target_="),
        (f"{StageTimes.__module__}.StageTimes", "expected a subclass of OptimizerConfig"),
        ("gnnscale.core.config.typed.typed", "expected a subclass of OptimizerConfig"),
        # A base is nothing to build.
        ("gnnscale.nn.optim.OptimizerConfig", r"optimizer\._target_"),
        (None, r"optimizer\._target_"),
    ):
        before = set(sys.modules)
        node = {"lr": 1.0} if target is None else {"_target_": target, "lr": 1.0}
        with pytest.raises(ConfigError, match=message):
            typed(OmegaConf.create(node), OptimizerConfig, group="optimizer")
        assert set(sys.modules) == before


@dataclass(frozen=True, kw_only=True)
class Figures:
    rates: list[float]
    name: str = "x"
    allows_infinite: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Holder:
    inner: Inner | None = None


def test_choices_and_ranges() -> None:
    check_range("a", 1, 1, 3)
    for value in (0, 4):
        with pytest.raises(ConfigError, match=f"a={value}: must be at least 1 and at most 3"):
            check_range("a", value, 1, 3)
    check_choice("a.b", "x", ("x", "y"))
    with pytest.raises(ConfigError, match=r"a\.b=z: allowed are x, y"):
        check_choice("a.b", "z", ("x", "y"))


def test_differences_by_hand() -> None:
    new = {"a": 1, "b": {"c": 2, "d": [1]}, "e": None}
    old = {"a": 1, "b": {"c": 3, "d": [1], "f": 0}}
    assert differences(new, old) == [("b.c", 2, 3), ("b.f", None, 0)]
    assert differences(new, old, ignore=("b",)) == []
    assert differences(new, old, ignore=("b.c",)) == [("b.f", None, 0)]


@dataclass(frozen=True, kw_only=True)
class Texts:
    name: str = "default"
    names: list[str] | None = None


def test_a_text_is_a_list_of_one_and_nothing_is_missing_silently() -> None:
    for names in (["ü"], "ü"):
        assert typed(OmegaConf.create({"names": names}), Texts).names == ["ü"]
    assert typed(OmegaConf.create({"names": None}), Texts).names is None
    with one_line(begins="g.name: required"):
        typed(OmegaConf.create({"name": "???"}), Texts, group="g")
