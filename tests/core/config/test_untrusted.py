import importlib
import inspect
import json
import os
import pkgutil
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import own_layers
import pytest
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf

import gnnscale
from gnnscale.cli.config_files import translate
from gnnscale.core.config import user_code
from gnnscale.core.config.typed import typed
from gnnscale.core.config.untrusted import (
    check_run_options,
    declared,
    forget_own,
    is_own_run,
    named_in,
    names,
    remember_own,
)
from gnnscale.core.errors import ConfigError
from gnnscale.inference.evaluate import evaluate
from gnnscale.inference.export.predict import PredictConfig, predict
from gnnscale.inference.export.weights import ExportConfig, export
from gnnscale.inference.load_run import load_run
from gnnscale.planner.device_spec import Device, Fpga
from gnnscale.planner.simulator import SimulateConfig
from gnnscale.report.doctor import DoctorConfig
from gnnscale.run import commands as command_options
from gnnscale.run.config import RunConfig

COMMANDS = (
    *(DoctorConfig, ExportConfig, PredictConfig, SimulateConfig, RunConfig),
    *(command_options.EvaluateConfig, command_options.PartitionConfig),
    *(command_options.PlanCacheConfig, command_options.PrepareConfig),
)
#: A text that no list of choices has.
NONSENSE = "/no such/place::of://anybody"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@dataclass(kw_only=True)
class Base:
    width: int = 1
    undeclared: str = "x"


@dataclass(kw_only=True)
class Data(Base):
    module: Any = field(default=None, metadata=names("code"))
    store: str | None = field(default=None, metadata=names("place"))
    raw: str | None = field(default=None, metadata=names("place", unless="store"))
    matrix: str | None = field(default=None, metadata=names("place", keywords=("dgx",)))
    image: str | None = field(default=None, metadata=names("program"))
    column: str | None = field(default=None, metadata=names("text"))
    arguments: dict[str, Any] = field(default_factory=dict, metadata=names("arguments"))


@dataclass(kw_only=True)
class Top:
    base: Base
    data: Data | None = None
    several: list[Data] = field(default_factory=list)
    resume: Path | None = None
    observers: list[str] = field(default_factory=list, metadata=names("code"))
    listed: list[Any] = field(
        default_factory=list,
        metadata=names("text", entries=lambda value: [(each, Data) for each in value]),
    )


def found(values: dict[str, Any]) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {each.option: (each.what, each.texts) for each in named_in(values, Top)}


def check(values: dict[str, Any], **given: Any) -> dict[str, Any]:
    given = {name.replace("__", "."): each for name, each in given.items()}
    check_run_options(values, Top, directory=Path("run"), overrides=given)
    return values


def refusal(values: dict[str, Any], **given: Any) -> str:
    with pytest.raises(ConfigError) as error:
        check(values, **given)
    return str(error.value)


def test_what_options_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found({"data": {"module": "a:B", "raw": ""}}) == {"data.module": ("code", ("a:B",))}
    assert found({"observers": ["a:B", "c:D"]}) == {"observers": ("code", ("a:B", "c:D"))}
    assert found({"resume": "x"}) == {"resume": ("place", ("x",))}
    # Numbers become texts where one is wanted.
    assert found({"data": {"store": 7}}) == {"data.store": ("place", ("7",))}
    assert found({"data": {"store": {"a": ["b"]}}}) == {"data.store": ("place", ("b",))}
    assert found({"data": {"matrix": "dgx", "column": "/a"}}) == {}
    assert found({"base": {"width": 3, "undeclared": "x.y"}, "unknown": {"raw": "/a"}}) == {}
    for text in ("/a", "a/b", "~a", "s3://a", "a::b"):
        assert found({"base": {"undeclared": text}}) == {"base.undeclared": ("place", (text,))}
    arguments = {"weights": ["/w"], "heads": 2, "norm": "batch"}
    expected = {"data.arguments.weights": ("place", ("/w",))}
    assert found({"data": {"arguments": arguments}}) == expected
    assert found({"listed": [{"image": "i"}]}) == {"listed": ("program", ("i",))}
    # Records in a list name what each of them names.
    several = [{"column": "c"}, {"image": "i"}]
    assert found({"several": several}) == {"several": ("program", ("i",))}
    # A group may be of another class than its base.
    monkeypatch.setattr(gnnscale, "Data", Data, raising=False)
    monkeypatch.setitem(sys.modules, "gnnscale.elsewhere", gnnscale)
    values = {"base": {"_target_": "gnnscale.elsewhere.Data", "module": "a:B"}}
    assert found(values) == {"base.module": ("code", ("a:B",))}


def test_a_group_of_an_unknown_class_is_refused(home: Path) -> None:
    expected = r"(no such class$|expected a class of gnnscale$|expected a subclass of )"
    for target in ("gnnscale.none.Data", "os.mkdir", "gnnscale.core.config.typed.typed", 3):
        with pytest.raises(ConfigError, match=rf"^run/config\.yaml: base\._target_=.*: {expected}"):
            check({"base": {"_target_": target, "module": "a:B"}})


OUTSIDE = [
    *("elsewhere/x", "/etc/hosts", "~/x", "~nobody-of-this-name/x", "run/../x", "run/link/x"),
    *("run/holds_a_link", "run/holds_a_pipe", "home/../x", "run\0x", "http://127.0.0.1:9/x"),
    *("file:///x/run/x", "reference://::file:///x/refs.json", "simplecache::run/x", "x" * 5000),
    *("~/home/graphs/x", "run/x::y", "7", "home", "home/platform.yaml", "home/runs/x"),
    "home/csim/x.so",
]


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run directory; what lies beside it, and a link that leads there."""
    (home.parent / "elsewhere").mkdir()
    monkeypatch.setenv("HOME", str(home.parent))
    directory = home.parent / "run"
    for name in ("holds_a_link/deep", "holds_a_pipe", "plain/deep"):
        (directory / name).mkdir(parents=True)
    (directory / "plain" / "deep" / "x.npy").touch()
    (directory / "link").symlink_to(home.parent / "elsewhere")
    (directory / "holds_a_link" / "deep" / "x.npy").symlink_to("/etc/hosts")
    os.mkfifo(directory / "holds_a_pipe" / "x.npy")
    return directory


def test_places_outside_are_named_again(run: Path, home: Path) -> None:
    for text in OUTSIDE:
        said = refusal({"data": {"store": text}})
        assert re.match(r"run/config\.yaml: data\.store=.*; if you trust it, add ", said)
        assert check({"data": {"store": text}}, data__store="x") == {"data": {"store": text}}
    (home / "graphs").mkdir()
    (home / "graphs" / "linked").symlink_to(home.parent / "elsewhere")
    for text in ("run/plain", "run/new/deep", "home/graphs/x", "home/graphs/linked/x"):
        absolute = {"weights": str(Path(text).absolute())}
        check({"data": {"store": text, "arguments": absolute}})


def test_what_is_typed_again_is_what_the_run_says(run: Path, home: Path) -> None:
    values = {"data": {"raw": "/my data/it's", "store": "run/plain"}}
    assert refusal(values) == (
        "run/config.yaml: data.raw=/my data/it's: outside of the run directory, and not used "
        "because a file that was found says so; if you trust it, add "
        """'data.raw='"'"'/my data/it\\'"'"'s'"'"''"""
    )
    said = refusal({"data": {"raw": "http://x"}})
    assert "data.raw=http://x: an address, and not used" in said

    def values() -> dict[str, Any]:
        return {"data": {"module": "my pkg:SAGE"}, "observers": ["a:B", "c:D"]}

    check(values(), data__module="other:SAGE", observers="[a:B]")
    assert refusal(values(), data__module="other:SAGE") == (
        "run/config.yaml: observers: names code, and nothing is imported because a file that was "
        "found says so; if you trust it, add 'data.module=my pkg:SAGE' "
        "'observers=[a:B,c:D]'"
    )


def test_what_is_not_needed_is_not_asked_for(run: Path) -> None:
    # A command has no use for some options, nor a store for the files that it was made of.
    values = {"data": {"store": "/x"}, "observers": ["a:B"]}
    check_run_options(values, Top, directory=run, overrides={}, used=("base.",))
    values = check({"data": {"raw": "/elsewhere", "store": "/one"}}, data__store="/other")
    assert values == {"data": {"raw": None, "store": "/one"}}
    kept = check({"data": {"raw": "run/plain"}}, data__store="/other")
    assert kept == {"data": {"raw": "run/plain"}}


def test_a_card_is_programmed_by_no_file_of_the_directory(run: Path, home: Path) -> None:
    device = {"image": "run/plain/deep/x.npy", "column": None, "module": None}
    assert refusal({"listed": [device, {"width": 2}]}).endswith(
        "no card is programmed because a file that was found says so; if you trust it, add "
        "'listed=[{image:run/plain/deep/x.npy,column:null,module:null},{width:2}]'"
    )
    assert "no card is programmed" in refusal({"listed": [{"image": "home/graphs/x"}]})
    check({"listed": [device]}, listed="[cpu]")


def own_run(run: Path) -> dict[str, Any]:
    values = {"data": {"store": "/elsewhere/x", "image": "/i"}, "seed": 1.0}
    (run / "config.yaml").write_text(OmegaConf.to_yaml(values))
    remember_own(run)
    return values


def test_the_users_own_run_needs_no_second_naming(run, home, caplog) -> None:
    values = own_run(run)
    check(values)
    assert is_own_run(run, values)
    # But for code, and in no other place, and with no other option.
    assert "names code" in refusal(values | {"observers": ["a:B"]})
    assert not is_own_run(home, values)
    assert not is_own_run(run, values | {"seed": 2})
    assert "outside of the run directory" in refusal(values | {"seed": 2})
    for _ in range(2):
        forget_own(run)  # which was refused
        assert not is_own_run(run, values)
        assert list(home.iterdir()) == []
    (home / "runs").touch()
    values = own_run(run)
    assert "cannot note that the run is yours (" in caplog.text
    assert not is_own_run(run, values)


@pytest.mark.parametrize(("mode", "which"), [(0o770, "folder"), (0o707, "file")])
def test_a_note_that_others_may_write_is_none(run: Path, home: Path, mode: int, which: str) -> None:
    values = own_run(run)
    (note,) = (home / "runs").iterdir()
    assert note.parent.stat().st_mode & 0o077 == 0
    assert note.stat().st_mode & 0o077 == 0
    (note if which == "file" else note.parent).chmod(mode)
    assert not is_own_run(run, values)


def add_classes(options: type, known: set[type]) -> None:
    if options in known or not options.__module__.startswith("gnnscale."):
        return
    hints = get_type_hints(options).values()
    if any(get_origin(hint) is np.ndarray for hint in hints):
        return  # arrays are made by code alone
    known.add(options)
    groups = [each for hint in hints for each in (hint, *get_args(hint)) if is_dataclass(each)]
    for each in (*options.__subclasses__(), *groups):
        add_classes(each, known)  # type: ignore[arg-type]


def option_classes() -> list[type]:
    # Nothing may be overlooked because nobody has imported it.
    for each in pkgutil.walk_packages(gnnscale.__path__, "gnnscale."):
        if not each.name.endswith("__main__"):
            importlib.import_module(each.name)
    known: set[type] = set()
    for options in (*COMMANDS, Device):
        add_classes(options, known)
    return sorted(known, key=lambda each: f"{each.__module__}.{each.__qualname__}")


CLASSES = option_classes()


def may_hold_text(hint: Any) -> bool:
    inside = () if get_origin(hint) is np.ndarray else get_args(hint)
    return hint in (str, Any, Path) or any(map(may_hold_text, inside))


TEXTS = {
    f"{options.__qualname__}.{each.name}": (options, each.name)
    for options in CLASSES
    for each in fields(options)
    if each.init and may_hold_text(get_type_hints(options)[each.name])
}
#: Classes that need more than an example of each type.
EXAMPLES: dict[str, dict[str, Any]] = {
    "Custom": {"functions": own_layers.PlainMean},
    "CustomModel": {"module": "mine:Net"},
    "StaticCache": {"hotness": "exact", "scope": "device"},
}


@cache
def composed(command: str, *choices: str) -> DictConfig:
    """Compose the shipped options of a command, which takes a tenth of a second."""
    OmegaConf.register_new_resolver("usable_cores", lambda: 2, replace=True)
    with initialize_config_module("gnnscale.configs", version_base="1.3"):
        return compose(command, [*choices])


def example(options: type) -> Any:
    if options in (SimulateConfig, RunConfig):
        return typed(composed("train" if options is RunConfig else "simulate"), options)
    if inspect.isabstract(options):
        return example(options.__subclasses__()[0])
    hints = get_type_hints(options)
    simple = {int: 2, float: 1.0, str: "x", Path: Path("x"), list[Any]: ["cpu"], list[int]: [2]}
    made = EXAMPLES.get(options.__name__, {}).copy()
    for each in fields(options):
        required = each.init and each.default is MISSING and each.default_factory is MISSING
        if required and each.name not in made:
            hint = hints[each.name]
            made[each.name] = simple[hint] if hint in simple else example(hint)
    return options(**made)


@pytest.mark.long
@pytest.mark.parametrize("option", sorted(TEXTS))
def test_every_text_is_declared_or_one_of_some_choices(option: str) -> None:
    """Declare a new option with ``names``, or let it refuse what is none of its choices."""
    options, name = TEXTS[option]
    if declared(options, name) is not None:
        return
    listed = get_origin(get_type_hints(options)[name]) is list
    with pytest.raises(ConfigError):
        replace(example(options), **{name: [NONSENSE] if listed else NONSENSE})


#: The options that name something, as a run directory may hold them, and what each names.
PLACES = (
    *("cache_plan", "cache_planner.nvlink", "cache_planner.store", "dataset.raw", "dataset.store"),
    *("dataset.features_file", "dataset.labels_file"),
    *("logger", "partitioner.nvlink", "partitioner.owners", "partitioner.store", "resume"),
    "task.candidates",
)
NAMING = {"device_plan.devices": "program", "model.arguments": "arguments"}
NAMING |= dict.fromkeys(PLACES, "place")
NAMING |= dict.fromkeys(("loss.function", "metrics", "model.module", "observers"), "code")


def test_what_a_run_may_name() -> None:
    """A new option that names something is added to ``NAMING``, and so is tested below."""
    groups = get_type_hints(RunConfig)
    found = {}
    for group, hint in groups.items():
        below: set[type] = set()
        for each in filter(is_dataclass, (hint, *get_args(hint))):
            add_classes(each, below)
        named = [(f"{group}.{each.name}", cls, each.name) for cls in below for each in fields(cls)]
        for option, cls, name in named or [(group, RunConfig, group)]:
            if (what := declared(cls, name)) not in (None, "text"):
                found[option] = what
    (program,) = (each.name for each in fields(Fpga) if declared(Fpga, each.name) == "program")
    assert program == "bitstream"
    assert found | {"device_plan.devices": "program"} == NAMING
    groups = [each for each in resources.files("gnnscale.configs").iterdir() if each.is_dir()]
    files = [file for group in groups for file in group.iterdir() if file.name.endswith(".yaml")]
    lines = [line for file in files for line in file.read_text().splitlines()]
    targets = {line.split()[1] for line in lines if "_target_" in line}
    known = {f"{each.__module__}.{each.__qualname__}" for each in CLASSES}
    assert {each for each in targets if each.startswith("gnnscale.")} <= known
    assert len(known) > 80


class Watch:
    def __init__(self) -> None:
        self.text: str | None = None
        self.seen: list[str] = []
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.text is None:
            return
        given = (os.fsdecode(each) for each in arguments if isinstance(each, (str, bytes)))
        if event.startswith("socket.") or any(self.text in each for each in given):
            self.seen.append(f"{event}{arguments}")

    def __call__(self, text: str, action: Callable[[], Any]) -> Any:
        self.text, self.seen = text, []
        try:
            return action()
        finally:
            self.text = None
            assert self.seen == []


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


def hostile(option: str, outside: str) -> dict[str, Any]:
    node = composed("train", "dataset=tables", "dataset.name=x", "device_plan=hybrid_emulated")
    values: dict[str, Any] = OmegaConf.to_container(node, resolve=True)  # type: ignore[assignment]
    options = "gnnscale.nn.options.CustomModel"
    arguments = {"module": "mine:Net", "arguments": {}, "form": "auto", "num_layers": 2}
    static = {"name": "x", "hotness": "exact", "scope": "device"}
    groups: dict[str, dict[str, Any]] = {
        "loss": {"_target_": "gnnscale.nn.losses.CustomLoss"},
        "model": {"_target_": options, **arguments},
        "partitioner": {
            "_target_": "gnnscale.partition.simple.FromFile",
            "owners": "home/owners/x",
        },
        "cache_planner": {"_target_": "gnnscale.cache.policies.StaticCache", **static},
        "task": {"_target_": "gnnscale.run.tasks.options.LinkPrediction"},
    }
    group, _, name = option.partition(".")
    if name == "_target_":
        values[group] = {}
    elif option == "partitioner.nvlink":
        values[group] = {"_target_": "gnnscale.partition.hierarchical.Hierarchical"}
    elif option in ("dataset.features_file", "dataset.labels_file"):
        values[group] = {"_target_": "gnnscale.data.readers.edge_list.EdgeList"}
    elif group in groups:
        values[group] = groups[group]
    what = {
        "device_plan.devices": ["cpu", {"kind": "fpga", "bitstream": outside}],
        "logger": {"csv": True, "mlflow": True},
        "loss.function": f"{outside}/x.py:f",
        "model.arguments": {"weights": outside, "heads": 2},
        "metrics": ["accuracy", f"{outside}/x.py:f"],
        "model.module": f"{outside}/x.py:f",
        **{f"{group}._target_": f"{outside}/x.py:f" for group in user_code.GROUPS},
        "observers": [f"{outside}/x.py:f"],
    }.get(option, outside)
    (values[group] if name else values)[name or option] = what
    return values


CODE_OF_GROUPS = tuple(f"{group}._target_" for group in user_code.GROUPS)


@pytest.mark.long
@pytest.mark.parametrize("option", sorted({*NAMING, *CODE_OF_GROUPS} - {"resume"}))
def test_no_option_is_followed(option, home, run, watch, monkeypatch) -> None:
    """``resume`` itself is always typed."""
    monkeypatch.setattr(user_code, "_allowed", set())
    outside = str(home.parent / "elsewhere" / "trap")
    Path(outside).mkdir()
    (Path(outside) / "x.py").write_text("raise SystemExit\n")
    (run / "link").unlink()
    for each in ("holds_a_link", "holds_a_pipe"):
        shutil.rmtree(run / each)
    (run / "config.yaml").write_text(OmegaConf.to_yaml(hostile(option, outside)))
    with pytest.raises(ConfigError, match=f"^{run}/config.yaml: .*{option}") as error:
        watch(outside, lambda: translate("train", [f"resume={run}"]))
    said = str(error.value)
    again = said.partition("if you trust it, add ")[2].partition(" (and model.arguments.")[0]
    assert len(said) < 2000
    # What it says is what is to be typed.
    line = [f"resume={run}", *shlex.split(again)]
    assert len(line) > 1
    assert any(each.startswith(option) for each in line[1:])
    watch(outside, lambda: translate("train", line))
    user_code._allowed.clear()
    if option.startswith(("dataset.", "model.", "task.")):
        with pytest.raises(ConfigError, match=r"if you trust it, add [a-z']"):
            watch(outside, lambda: load_run(run))
    else:
        watch(outside, lambda: load_run(run))


@pytest.mark.long
def test_code_of_a_part_that_takes_none(home: Path, run: Path, watch: Watch) -> None:
    """Neither what is used after training, nor what is not, imports it."""
    (run / "link").unlink()
    (home / "x.py").write_text("raise SystemExit\n")
    for group in ("optimizer", "runtime", "loss", "dataset", "task", "device_plan"):
        values = hostile("dataset.store", str(home / "graphs" / "x"))
        values[group] = {"_target_": f"{home}/x.py:f"}
        (run / "config.yaml").write_text(OmegaConf.to_yaml(values))
        for command in (lambda: load_run(run), lambda: translate("train", [f"resume={run}"])):
            with pytest.raises(
                ConfigError, match=rf"{group}\._target_=.*: expected a class of gnnscale"
            ):
                watch("x.py", command)


def test_places_beside_code_are_named_again(home: Path, run: Path) -> None:
    """What options of a user's class mean is not known before it is imported."""
    values = {"_target_": "own.py:P", "store": "/elsewhere/a", "table": "/elsewhere/b", "n": 3}
    found = {each.option: each.what for each in named_in({"partitioner": values}, RunConfig)}
    places = dict.fromkeys(("partitioner.store", "partitioner.table"), "place")
    assert found == {"partitioner._target_": "code"} | places


KEY = "{{ cycler.__init__.__globals__.os.mkdir('executed') }}vertices.csv"
REFERENCES = {"version": 1, "gen": [{"key": KEY, "url": "x", "dimensions": {"i": {"stop": 1}}}]}


def test_references_are_not_opened(home: Path, run: Path, watch: Watch) -> None:
    shutil.rmtree(run)
    run.mkdir()
    file = run / "refs.json"
    file.write_text(json.dumps(REFERENCES))
    values = hostile("dataset.raw", f"reference://::file://{file}")
    (run / "config.yaml").write_text(OmegaConf.to_yaml(values))
    commands: list[Callable[[], Any]] = [
        lambda: translate("train", [f"resume={run}"]),
        lambda: evaluate(command_options.EvaluateConfig(run=run, num_threads=1)),
        lambda: predict(PredictConfig(run=run, num_threads=1, out=Path("x.npy"))),
        lambda: export(ExportConfig(run=run)),
        lambda: gnnscale.load(run),
    ]
    said = r"dataset\.raw=reference.*: an address, and not used"
    for command in commands:
        with pytest.raises(ConfigError, match=said):
            watch("refs.json", command)
    # Nor if somebody types it.
    typed_again = command_options.DataPathOptions(raw=f"reference://::file://{file}")
    config = command_options.EvaluateConfig(run=run, num_threads=1, dataset=typed_again)
    with pytest.raises(ConfigError, match=r"raw=reference.*: expected one address"):
        watch("refs.json", lambda: evaluate(config))
    assert not Path("executed").exists()


def test_what_is_given_again_in_python(home: Path, run: Path, monkeypatch: Any) -> None:
    (run / "link").unlink()
    values = hostile("dataset.store", "/elsewhere/x")
    (run / "config.yaml").write_text(OmegaConf.to_yaml(values))
    with pytest.raises(ConfigError, match=r"dataset\.store=/elsewhere/x: outside of the run"):
        gnnscale.load(run)
    with pytest.raises(ConfigError, match=r"call load\(\.\.\., options={'dataset\.store': '/elsew"):
        gnnscale.load(run)
    with pytest.raises(ConfigError, match=r"dataset\.store=/elsewhere/y: no such graph store"):
        gnnscale.load(run, options={"dataset.store": Path("/elsewhere/y")})
