import os
from pathlib import Path
from typing import Any

import pytest
from hydra.core.config_store import ConfigStore
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from one_line import one_line

from gnnscale.core.config.yaml_file import (
    check_known,
    check_references,
    escaped,
    read_regular,
    read_yaml,
    resolved,
)
from gnnscale.core.errors import ConfigError

VALUES = """\
whole: 1_000
small: 1e-3
dotted: .5
text: '1e5'
date: 2026-01-31
yes: no
nothing: null
endless: .inf
nested: {list: [1, [2.5, {deep: x}]]}
"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "some.yaml"
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    return file


def test_scalars_are_those_of_omegaconf(tmp_path: Path) -> None:
    values = read_yaml(written(tmp_path, VALUES.replace("yes:", "bool:")))
    assert values == {
        **{"whole": 1000, "small": 0.001, "dotted": 0.5, "text": "1e5", "date": "2026-01-31"},
        **{"bool": False, "nothing": None, "endless": float("inf")},
        "nested": {"list": [1, [2.5, {"deep": "x"}]]},
    }
    assert values == OmegaConf.to_container(OmegaConf.load(tmp_path / "some.yaml"))
    assert read_yaml(written(tmp_path, "# nothing\n")) == {}


KEYS = st.sampled_from(["a", "b_c", "_target_", "yes", "null"])
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=8)
    | st.sampled_from(
        ["1e5", "null", "yes", "0x10", "1_0", "", "~", "- a", "a: b", ".inf", "1:30"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.long
@settings(max_examples=50)
@given(values=st.dictionaries(st.sampled_from(["a", "seed", "on"]), PLAIN, max_size=3))
def test_what_hydra_is_handed_is_what_was_read(values: dict[str, Any]) -> None:
    try:
        check_references(Path("x"), values, allowed=False)
    except ConfigError:
        return
    ConfigStore.instance().store("read", values)
    assert OmegaConf.to_container(ConfigStore.instance().load("read.yaml").node) == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1", "expected a mapping of options, got a list"),
        ("a: [1", "not valid YAML in line 2"),
        ("a: &x 1\nb: *x", "anchor x: write the values out instead"),
        ("a: !!python/object/apply:os.system ['touch ran']", "tag tag:yaml.org,2002:python/object"),
        ("a: " + "[" * 30 + "]" * 30, "expected at most 24 levels"),
        ("a: [" + "1," * 200_000 + "]", "100,000 values"),
        ("1: 2", "1: expected the name of an option"),
        ("a: {b.c: 2}", "a.b.c: expected the name of an option"),
        ("a: 1\na: 2", "not valid YAML in line 1 (a is given twice)"),
        ("a: 99999999999999999999999", "a: expected a number of 64 bits"),
        ("a: " + "9" * 5000, "cannot be read as YAML (a number is none, or too long)"),
        ("a: .nan", "a=nan: expected a number"),
        ('a: ["\\e[31m"]', "a.0=\\x1b[31m: control characters are not allowed"),
        ("a: \x00", "cannot be read as YAML"),
    ],
)
def test_what_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = written(tmp_path, text)
    with one_line(message, begins=str(file), shorter_than=700):
        read_yaml(file)


def test_what_is_nested_or_repeated_is_cheap(tmp_path: Path) -> None:
    """Newer releases of PyYAML refuse the first before its levels are counted."""
    with pytest.raises(ConfigError, match=r"24 levels|maximum nesting depth"):
        read_yaml(written(tmp_path, "[" * 100_000))
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(ConfigError, match="anchor a0"):
        read_yaml(written(tmp_path, "\n".join(lines)))


def test_only_regular_files_of_some_size_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(ConfigError, match="not a regular file"):
            read_yaml(tmp_path / name)
    with pytest.raises(ConfigError, match=r"/dev/zero: not a regular file"):
        read_yaml(Path("/dev/zero"))
    with pytest.raises(ConfigError, match="larger than 1,048,576 bytes"):
        read_yaml(written(tmp_path, "#" * (1 << 20) + "\n"))
    (tmp_path / "some.yaml").write_bytes(b"a: \xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_yaml(tmp_path / "some.yaml")
    assert read_regular(written(tmp_path, "abc"), limit=3) == b"abc"


def test_known_options_alone_and_nothing_is_evaluated() -> None:
    file = Path("a.yaml")
    check_known(file, {"seed": 1}, ("seed", "epochs"))
    with pytest.raises(ConfigError, match=r"a\.yaml: epoch: unknown option, did you mean 'epochs'"):
        check_known(file, {"epoch": 1}, ("seed", "epochs"))
    for name in ("hydra", "defaults"):
        with pytest.raises(ConfigError, match=f"a.yaml: {name}: .*on the command line"):
            check_known(file, {name: {}}, ("seed",))
    for text in ("${oc.env:HOME}", "${hydra:run.dir}", "${x${seed}}", "\\\\${seed", "${now:%s}"):
        with pytest.raises(ConfigError, match="not allowed in this file"):
            check_references(Path("a.yaml"), {"a": [{"b": text}]}, allowed=True)
    # Options may refer to each other where a user wrote them.
    values = {"a": "${seed}", "b": ["${ model.hidden }", "${.c}"], "c": "${usable_cores:}"}
    check_references(Path("a.yaml"), values, allowed=True)
    with pytest.raises(ConfigError, match="it holds values alone"):
        check_references(Path("a.yaml"), values, allowed=False)


@example(text="$${{a}")  # without its escape it would read ${a}
@given(text=st.text(alphabet="\\\\$${{}}a:. '\"", max_size=9))
def test_texts_that_look_like_references_are_read_as_written(text: str) -> None:
    values = {"a": {"b": [text, 1, None]}, "c": text}
    check_references(Path("a.yaml"), escaped(values), allowed=False)
    assert resolved(escaped(values)) == values


def test_options_that_are_texts_are_what_the_file_says(tmp_path: Path) -> None:
    content = """
        dataset: {label: true, id: 007, name: 1e3, weight: null, store: ~, raw: "5", seed: 007}
        dataset.features: [1.50, no, null, a]
    """
    file = written(tmp_path, content.replace("dataset.features", "features"))
    texts = {f"dataset.{name}" for name in ("label", "id", "name", "weight", "store", "raw")}
    found = read_yaml(file, is_text=lambda option: option in texts | {"features"})
    expected = {"label": "true", "id": "007", "name": "1e3", "weight": None, "store": None}
    assert found["dataset"] == expected | {"raw": "5", "seed": 7}
    assert found["features"] == ["1.50", "no", None, "a"]


def test_names_of_types_are_keys(tmp_path: Path) -> None:
    text = "dataset: {edges: {user-buys-item: o.csv}, foreign_keys: {order.user_id: user}}"
    values = read_yaml(written(tmp_path, text))
    assert values["dataset"]["foreign_keys"] == {"order.user_id": "user"}
    values = read_yaml(written(tmp_path, "sampler: {edge_fanouts: {user-buys-item: [0, 5]}}"))
    assert values["sampler"]["edge_fanouts"] == {"user-buys-item": [0, 5]}
    with pytest.raises(ConfigError, match="write user_id"):
        read_yaml(written(tmp_path, "dataset: {raw: {user-id: x}}"))
