"""Options that are texts take what was typed, whatever characters it has."""

import json
import os
import shlex
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.cli.command import explain_hydra
from gnnscale.cli.config_files import translate
from gnnscale.cli.texts import as_typed, quoted, working_quotes
from gnnscale.core.config.compose import compose
from gnnscale.core.config.typed import typed as parsed
from gnnscale.core.errors import ConfigError
from gnnscale.data.readers.tables import Tables
from gnnscale.data.readers.typed.typed_tables import TypedTables

WORDS = r"""
    a(1) a=b ~x #1 a&b 数据 ; true True NULL 007 1e3 1_000 -5 0x10 .5 inf nan a"b a'b'c a\b a\ a\\'
    {a} [a] a,b , $(x) `x` a|b a;b a: a) (a * ? ! % @a <a> é + - müller/mine.npz it's/mine.npz
"""
ODD = (*WORDS.split(), "a b", " ", "Class (Type)", " a", "a ", "a\u2028b", "𝄞")
#: Which Hydra means.
HYDRAS = ("'a b'", '"ü"', "null", "", "${seed}", "choice(a,b)", "range(3)", "${oc.env:HOME}/x")
#: Hydra's casts and escapes: in a text they are characters.
CASTS = ("str(7)", "int(3)", "float(m)", "a\\:b", "a\\ b", "C:\\data\\x", "\\t", "\\(a\\)")
#: All options that take text, with their commands.
TEXTS = [
    (command, name + "key" * name.endswith("."), kind)
    for command, options in json.loads(
        (resources.files("gnnscale.cli") / "texts.json").read_text()
    ).items()
    for name, kind in options.items()
    if kind != "mixed"
]
PRINTABLE = st.text(st.characters(blacklist_categories=("Cc", "Cs")), min_size=1)


def is_hydras(text: str) -> bool:
    """Whether ``text`` begins or reads like what has a meaning of Hydra's in every option."""
    sweeps = ("choice", "range", "interval", "glob", "tag", "sort", "shuffle")
    function = text.strip().partition("(")[0].strip()
    return text == "null" or text[0] in "'\"" or "${" in text or function in sweeps


def value_of(argument: str) -> Any:
    override = OverridesParser.create().parse_override(argument)
    found: Any = override.value()
    return getattr(found, "text", found)


def composed(*arguments: str, command: str = "prepare") -> Any:
    translated = translate(command, ["dataset=tables", "dataset.raw=x", *arguments])
    return compose(translated.config, translated.arguments)[0]


def test_a_text_is_what_was_typed() -> None:
    for text in (*ODD, *CASTS):
        for option in ("dataset.weight", "+dataset.store"):
            assert value_of(as_typed(f"{option}={text}", "train", sweep=False)) == text
        if "," in text:
            continue
        assert value_of(as_typed(f"dataset.weight={text}", "train", sweep=True)) == text
        if text.strip():
            listed = value_of(as_typed(f"dataset.features=[b,{text}, c]", "train", sweep=False))
            assert [getattr(each, "text", each) for each in listed] == ["b", text.strip(), "c"]
    for argument in (f"dataset.label={value}" for value in HYDRAS):
        for sweep in (False, True):
            assert as_typed(argument, "train", sweep=sweep) == argument
    for argument in (
        *("seed=0", "seed=007", "epochs=1e3", "sampler.fanouts=[5,5]", "seed=ü", "model=gcn"),
        *("dataset.split_seed=true", "-m", "~dataset", "config=ü.yaml", "output=ü"),
        *("device_plan.devices=[{kind:cpu}]", "part_stores=true", "optimizer.lr=1e-3"),
        *("partitioner=mine.py:Dealt", "dataset.name=cora", "hydra/launcher=joblib"),
        "dataset.raw=/data/a.b-c_d/x.npz",
    ):
        assert as_typed(argument, "train", sweep=False) == argument


@given(st.sampled_from(TEXTS), PRINTABLE)
def test_any_text_of_any_option_is_what_was_typed(option: tuple[str, str, str], text: str) -> None:
    command, name, kind = option
    assert value_of(f"a={quoted(text)}") == text
    if is_hydras(text):
        return
    if kind == "text" or "," not in text:
        assert value_of(as_typed(f"{name}={text}", command, sweep=False)) == text
    each = text.strip()
    if each and "," not in text and not is_hydras(each):
        found = value_of(as_typed(f"{name}=x,{text}", command, sweep=True))
        assert [getattr(one, "text", one) for one in found.list] == ["x", each]
        if kind == "texts":
            listed = value_of(as_typed(f"{name}=[x,{text}]", command, sweep=False))
            assert [getattr(one, "text", one) for one in listed] == ["x", each]


@pytest.mark.long
def test_what_is_refused_shows_what_works() -> None:
    with pytest.raises(ConfigError, match="a tab as a delimiter is typed tab"):
        translate("prepare", ["dataset.delimiter=\t"])
    for value in ("a${b", "${x}"):
        with pytest.raises((ConfigError, HydraException)) as error:
            parsed(composed(f"dataset.label={value}").dataset, Tables, group="dataset")
        assert explain_hydra(error.value).endswith("in a text it is typed \\${")
    assert composed("dataset.label=\\${x}").dataset.label == "${x}"
    with pytest.raises(HydraException, match="requires --multirun") as swept_once:
        composed("dataset.label=choice(a,b)")
    assert explain_hydra(swept_once.value) == (
        "choice(a,b): add -m to run a sweep; a text goes in quotes, "
        + shlex.quote("dataset.label='choice(a,b)'")
    )
    # One text is a list of one.
    names = parsed(composed("dataset.features=Größe (m)").dataset, Tables, group="dataset")
    assert names.features == ["Größe (m)"]


def test_a_mapping_of_types_is_no_text() -> None:
    """Options of one name are texts of a table, and mappings of tables by type."""
    typed_tables = ["dataset=typed_tables", "dataset.vertices={user: u.csv, tag: null}"]
    typed_tables += ["dataset.edges={user-has-tag: 'e.csv'}", "dataset.edges.tag-of-user=f.csv"]
    typed_tables += ["dataset.id={user: uid}", "dataset.features={user: [age, a b]}"]
    dataset = parsed(composed(*typed_tables).dataset, TypedTables, group="dataset")
    assert dataset.vertices == {"user": "u.csv", "tag": None}
    assert dataset.edges == {"user-has-tag": "e.csv", "tag-of-user": "f.csv"}
    assert (dataset.id, dataset.features) == ({"user": "uid"}, {"user": ["age", "a b"]})
    assert composed("dataset=typed_tables", "dataset.id=007").dataset.id == "007"
    assert composed("dataset.vertices={u").dataset.vertices == "{u"
    odd = composed("dataset=typed_tables", "dataset.vertices={u: ü (1).csv, i: [straße, null]}")
    assert odd.dataset.vertices == {"u": "ü (1).csv", "i": ["straße", None]}
    with pytest.raises(ConfigError, match=r"keys here are ASCII .*config=FILE.yaml takes any"):
        translate("train", ["dataset=typed_tables", "dataset.vertices={käufer: u.csv}"])
    for base, argument in (
        (Tables, "dataset.edges={user-buys-item: orders.csv}"),
        (TypedTables, "dataset.edges=orders.csv"),
    ):
        layout = "tables" if base is Tables else "typed_tables"
        other = "typed_tables" if base is Tables else "tables"
        with pytest.raises(ConfigError, match=f"dataset.edges=.*: expected .*dataset={other} "):
            parsed(composed(f"dataset={layout}", argument).dataset, base, group="dataset")


def swept(argument: str) -> list[Any]:
    override = OverridesParser.create().parse_override(as_typed(argument, "train", sweep=True))
    found: Any = override.value()
    return [getattr(each, "text", each) for each in found.list]


def test_a_sweep_takes_each_value_as_it_was_typed() -> None:
    texts = ["a", "ü", "Class (Type)", "b,c", "007"]
    assert swept("dataset.label=a,ü, Class (Type),'b,c',007") == texts
    assert swept("dataset.name=cora,citeseer") == ["cora", "citeseer"]
    assert swept("dataset.raw=choice(a,b)") == ["a", "b"]
    assert swept("dataset.features=ü,true") == ["ü", "true"]
    lists = swept("dataset.features=[a,ü],[true]")
    found = [[getattr(each, "text", each) for each in one] for one in lists]
    assert found == [["a", "ü"], ["true"]]
    assert composed("dataset.label=Name, First").dataset.label == "Name, First"
    assert composed("dataset.delimiter=,").dataset.delimiter == ","
    # Of choices, several are a sweep, and the error says how that is asked for.
    assert as_typed("dataset.name=cora,citeseer", "train", sweep=False).endswith("cora,citeseer")


def test_values_of_either_kind(tmp_path: Path) -> None:
    ids = composed("vertices=[1,2]", "run=x", "out=y.npy", command="predict").vertices
    assert list(ids) == [1, 2]
    texts = composed("vertices=[Größe,a (b)]", "run=x", "out=y.npy", command="predict").vertices
    assert list(texts) == ["Größe", "a (b)"]
    file = composed("vertices=müller/a.csv", "run=ü", "out=y.npy", command="predict")
    assert (file.vertices, file.run) == ("müller/a.csv", "ü")
    options = composed(
        "model=custom", "model.module=ü.py:A", "model.arguments.x=ü", command="train"
    )
    assert (options.model.module, options.model.arguments.x) == ("ü.py:A", "ü")
    assert translate("train", ["hydra.run.dir=ü (1)"]).arguments == ("hydra.run.dir='ü (1)'",)
    assert translate("train", ["-m", "hydra.sweep.dir=ü (1)"]).output == "ü (1)"
    file = tmp_path / "mine (ü).yaml"
    file.write_text(
        "defaults:\n  - override /dataset: tables\n"
        "dataset: {raw: x, label: true, id: 007, weight: null, features: [1.50, Größe (m)]}\n"
    )
    translated = translate("train", [f"config={file}"])
    dataset = compose(translated.config, translated.arguments)[0].dataset
    assert (dataset.label, dataset.id, dataset.weight) == ("true", "007", None)
    assert list(dataset.features) == ["1.50", "Größe (m)"]


def test_other_options_show_the_quotes_that_work() -> None:
    for argument, typed in (
        ("seed=ü", "seed='ü'"),
        ("optimizer.lr=a(1)", "optimizer.lr='a(1)'"),
        ("device_plan.split=[ü,1]", "device_plan.split=['ü',1]"),
    ):
        with pytest.raises(ConfigError) as error:
            translate("train", [argument])
        assert str(error.value).endswith(f"; a text goes in quotes, {shlex.quote(typed)}")
        assert working_quotes(argument) == typed
        translate("train", [typed])
    # None helps where the name is wrong.
    with pytest.raises(ConfigError) as error:
        translate("train", ["sö=1"])
    assert "quotes" not in str(error.value)


@pytest.mark.integration
def test_commands_take_the_paths_that_they_print(gnnscale: Any, tmp_path: Path) -> None:
    folder = tmp_path / "müller (it's), a=b;"
    folder.mkdir()
    ends = np.arange(60)
    np.savez(
        folder / "mine.npz",
        edge_index=np.stack([ends, np.roll(ends, 1)]),
        features=np.eye(60, 4, dtype=np.float32),
        labels=ends % 2,
    )
    data = (f"dataset.raw={folder}/mine.npz", "dataset.split=random")
    store = gnnscale(
        "prepare", "dataset=arrays", *data, f"dataset.store={folder}/store"
    ).succeeded()
    assert store.stdout.splitlines()[-1] == f"{folder}/store"
    small = ("epochs=1", "model.hidden=4", "sampler.fanouts=[2,2]", "num_threads=1")
    trained = gnnscale("train", "dataset=arrays", *data, *small, f"output={folder}/run").succeeded()
    run = trained.stdout.splitlines()[-1]
    command = json.loads(Path(run, "summary.json").read_text())["command"]
    gnnscale(*shlex.split(command)[1:], f"output={folder}/again").succeeded()
    for arguments in (
        ("evaluate", f"run={run}"),
        ("predict", f"run={run}", f"out={folder}/p.npy"),
        ("export", f"run={run}", f"out={folder}/m.safetensors"),
        ("doctor", f"store={folder}/store"),
        ("train", f"resume={run}", "epochs=2"),
    ):
        gnnscale(*arguments).succeeded()
    assert {"p.npy", "m.safetensors", "store", "run", "again"} <= set(os.listdir(folder))
