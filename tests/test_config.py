from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from gnnscale.config import (
    ConfigError,
    check_choice,
    differences,
    nearest,
    typed,
    unknown_option,
)
from gnnscale.runtime.optimizer import Adam, OptimizerConfig


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


def build(**values: object) -> Outer:
    return typed(OmegaConf.create(values), Outer)


def test_builds_nested_dataclasses_with_converted_values() -> None:
    result = build(count=3, inner={"rate": 1, "sizes": [25, 10]}, place="a/b")
    assert result == Outer(count=3, inner=Inner(rate=1.0, sizes=[25, 10]), place=Path("a/b"))
    assert isinstance(result.inner.rate, float)


def test_interpolations_resolve_where_they_stand() -> None:
    node = OmegaConf.create({"count": 7, "inner": {"rate": 1, "sizes": ["${count}", 2]}})
    assert typed(node, Outer).inner.sizes == [7, 2]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": "abc", "inner": {"rate": 1}}, "count: Value 'abc'"),
        ({"count": 1.5, "inner": {"rate": 1}}, "count: Value '1.5'"),
        ({"count": True, "inner": {"rate": 1}}, "count: Value 'True'"),
        ({"count": 1, "inner": {"rate": "q"}}, "inner.rate: Value 'q'"),
        ({"count": 1, "inner": {"rate": 1, "sizes": [1, "w"]}}, "inner.sizes: Value 'w'"),
        ({"count": 1, "inner": 3}, "inner=3: a group of options, not a value"),
        ({"count": 1}, "inner: required"),
        ({"count": "???", "inner": {"rate": 1}}, "count: required"),
        ({"count": None, "inner": {"rate": 1}}, "count=null: a value is required"),
        ({"count": 1, "inner": {"rte": 1}}, "inner.rte: unknown option, did you mean 'inner.rate'"),
        ({"count": 1, "coutn": 1, "inner": {"rate": 1}}, "coutn: unknown option, did you mean"),
    ],
)
def test_refuses_in_one_line(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        build(**values)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("os.system", "not a class of gnnscale"),
        ("gnnscale.runtime.optimizer.Adamm", "no such class"),
        ("gnnscale.nowhere.Adam", "no such class"),
        ("gnnscale.metrics.StageTimes", "not a OptimizerConfig"),
        ("gnnscale.config.typed", "not a OptimizerConfig"),
    ],
)
def test_target_names_only_classes_of_the_group(target: str, message: str) -> None:
    node = OmegaConf.create({"_target_": target, "lr": 1.0})
    with pytest.raises(ConfigError, match=message):
        typed(node, OptimizerConfig, group="optimizer")


def test_target_chooses_the_class() -> None:
    node = OmegaConf.create({"_target_": "gnnscale.runtime.optimizer.Adam", "lr": 1})
    assert typed(node, OptimizerConfig, group="optimizer") == Adam(lr=1.0)


def test_nearest_and_unknown_option() -> None:
    assert nearest("epoch", ["epochs", "seed"]) == ", did you mean 'epochs'?"
    assert nearest("zzz", ["epochs", "seed"]) == ""
    known = ["epochs", "seed", "optimizer.lr", "model.hidden"]
    assert unknown_option("epoch", known) == "epoch: unknown option, did you mean 'epochs'?"
    assert unknown_option("lr", known) == "lr: unknown option, did you mean 'optimizer.lr'?"
    assert unknown_option("hiden", known).endswith("did you mean 'model.hidden'?")
    assert unknown_option("q", known) == "q: unknown option"


def test_check_choice_names_all_that_is_allowed() -> None:
    check_choice("a.b", "x", ("x", "y"))
    with pytest.raises(ConfigError, match=r"a\.b=z: allowed are x, y"):
        check_choice("a.b", "z", ("x", "y"))


def test_differences_by_hand() -> None:
    new = {"a": 1, "b": {"c": 2, "d": [1]}, "e": None}
    old = {"a": 1, "b": {"c": 3, "d": [1], "f": 0}}
    assert differences(new, old) == [("b.c", 2, 3), ("b.f", None, 0)]
    assert differences(new, old, ignore=("b",)) == []
    assert differences(new, old, ignore=("b.c",)) == [("b.f", None, 0)]


NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.integers(0, 2) | st.none()
OPTIONS = st.dictionaries(NAMES, VALUES | st.dictionaries(NAMES, VALUES, max_size=3), max_size=3)


@given(OPTIONS, OPTIONS)
def test_differences_are_symmetric_and_empty_for_the_same(
    left: dict[str, object], right: dict[str, object]
) -> None:
    assert differences(left, left) == []
    forth = {(name, old, new) for name, new, old in map(_hashable, differences(left, right))}
    assert forth == set(map(_hashable, differences(right, left)))


def _hashable(difference: tuple[str, object, object]) -> tuple[str, str, str]:
    name, new, old = difference
    return name, repr(new), repr(old)
