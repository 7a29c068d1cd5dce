import inspect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_line import one_line

import gnnscale
from gnnscale.core.config.option_names import (
    _OPTION_OF,
    flat_options,
    option_of_keyword,
    options_called,
    options_meant,
    packaged_options,
    unknown_option,
)

#: Keywords with options of other names.
KEYWORDS = {"epochs": "epochs", "hidden": "model.hidden", "lr": "optimizer.lr"}


def test_options_and_the_choices_that_have_them() -> None:
    options = packaged_options()
    assert options["model.num_heads"] == ("gat", "gatv2", "hgt", "rgat")
    assert options["optimizer.momentum"] == ("sgd",)
    assert options["runtime.patience"] == ("default",)
    assert options["epochs"] == options["model"] == options["experiment"] == ()
    assert "hydra" not in options
    assert not any("_target_" in name for name in options)
    assert options_called("seed") == ["seed"]
    assert options_called("alpha") == ["model.alpha", "cache_planner.alpha"]
    assert options_called("split") == ["device_plan.split", "task.split", "dataset.split"]
    assert options_called("model.hidden") == ["model.hidden"]
    assert options_called("learning_rate") == []
    assert options_meant("learning_rate") == ["optimizer.lr"]


def test_words_of_other_libraries_mean_an_option_or_a_keyword() -> None:
    keywords = inspect.signature(gnnscale.train).parameters
    for word, option in _OPTION_OF.items():
        assert option in packaged_options() or option in keywords, word
        assert not options_called(word) or word == "devices", word


def test_an_unknown_option_says_what_is_meant() -> None:
    known = ["epochs", "seed", "optimizer.lr", "model.hidden"]
    assert unknown_option("epoch", known) == "epoch: unknown option, did you mean 'epochs'?"
    assert unknown_option("lr", known) == "lr: unknown option, did you mean 'optimizer.lr'?"
    assert unknown_option("n_epochs", known).endswith("did you mean 'epochs'?")
    assert unknown_option("model.hidden_dim", known).endswith("did you mean 'model.hidden'?")
    assert unknown_option("hiden", known).endswith("did you mean 'model.hidden'?")
    assert unknown_option("q", known) == "q: unknown option"
    assert unknown_option("model.num_heads", known) == (
        "model.num_heads: unknown option, it belongs to model=gat, gatv2, hgt or rgat; a file "
        "chooses one by defaults: [override /model: gat]"
    )


def test_keywords() -> None:
    for keyword, option in (
        ("weight_decay", "optimizer.weight_decay"),
        ("patience", "runtime.patience"),
        ("schedule", "optimizer.schedule"),
        ("norm", "model.norm"),
        *((name, name) for name in ("optimizer", "loss", "logger", "metrics", "task", "features")),
    ):
        assert option_of_keyword(keyword, KEYWORDS) == option
    for keyword, meant in (
        ("n_epochs", "epochs"),
        ("max_epochs", "epochs"),
        ("learning_rate", "lr"),
        ("hidden_channels", "hidden"),
        ("num_neighbors", "fanouts"),
        ("device", "device_plan"),
        ("early_stopping", "patience"),
        ("lr_schedule", "schedule"),
        ("verbose", "progress"),
        ("weight_deccay", "weight_decay"),
    ):
        with one_line(f"did you mean {meant!r}?", begins=f"{keyword}: unknown option"):
            option_of_keyword(keyword, KEYWORDS)
    with one_line("options={'model.alpha': ...} or options={'cache_planner.alpha': ...}"):
        option_of_keyword("alpha", KEYWORDS)


NAMES = st.text("abc", min_size=1, max_size=2)
TREES: Any = st.recursive(
    st.integers() | st.none() | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, TREES, max_size=3))
def test_nested_options_are_their_dotted_names(options: dict[str, Any]) -> None:
    flat = flat_options(options)
    assert flat_options(flat) == flat
    for name, value in flat.items():
        node: Any = options
        for part in name.split("."):
            node = node[part]
        assert node is value


def test_nested_and_dotted_options_mix() -> None:
    options = {"runtime": {"patience": 2}, "runtime.drm": False, "optimizer": "sgd", "model": {}}
    assert flat_options(options) == {
        "runtime.patience": 2,
        "runtime.drm": False,
        "optimizer": "sgd",
    }
    assert flat_options({"a": {"b": {}}}) == {"a.b": {}}  # which is refused as unknown
    # The arguments of a module have names of the user's own.
    arguments = {"model": {"arguments": {"a.b": {"c": 1}}}}
    assert flat_options(arguments) == {"model.arguments": {"a.b": {"c": 1}}}
    with one_line(begins="options: runtime.patience: expected once"):
        flat_options({"runtime": {"patience": 2}, "runtime.patience": 3})
    for wrong in (5, [("seed", 1)], "seed=1"):
        with one_line(": expected a mapping", begins="options="):
            flat_options(wrong)
    for key in (5, "", None):
        with pytest.raises(gnnscale.ConfigError, match="expected the name of an option"):
            flat_options({"model": {key: 1}})
