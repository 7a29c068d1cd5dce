"""Make what of docs/ follows from something else: options, benchmarks, tables of packages.

    python scripts/tools/make_docs.py          writes the pages, cli/meanings.json, cli/texts.json
    python scripts/tools/make_docs.py --check  writes nothing; exit status 1 if a file is outdated

``gnnscale/cli/meanings.json`` has what the options' docstrings say, for ``--help``, and
``texts.json`` the options whose values are texts, which are taken as they are typed.
"""

import ast
import json
import re
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import yaml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

from gnnscale.core.config.compose import compose
from gnnscale.core.config.typed import typed
from gnnscale.core.config.untrusted import declared
from gnnscale.fpga_design import GenerateConfig
from gnnscale.inference.export.predict import PredictConfig
from gnnscale.inference.export.weights import ExportConfig
from gnnscale.nn import GraphSAGE
from gnnscale.planner.cost_model.stage_work import batch_bytes
from gnnscale.planner.cuda_spec import Cuda
from gnnscale.planner.device_spec import Accelerator, Cpu, Device, Emulated
from gnnscale.planner.graphs import PUBLISHED
from gnnscale.planner.simulator import SimulateConfig, simulate
from gnnscale.planner.simulator.simulate import published_workload
from gnnscale.report.doctor import DoctorConfig
from gnnscale.report.simulate import draw
from gnnscale.run import commands as command_options
from gnnscale.run.checkpoint.file import FREE_OPTIONS, PLAN_OPTIONS
from gnnscale.run.config import RunConfig

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "gnnscale"
CONFIGS = PACKAGE / "configs"
NOTE = "<!-- Made by scripts/tools/make_docs.py: change its source, then run it. -->\n"
COMMANDS: dict[str, type[Any]] = {
    **{"prepare": command_options.PrepareConfig, "partition": command_options.PartitionConfig},
    **{"plan-cache": command_options.PlanCacheConfig, "train": RunConfig},
    **{"evaluate": command_options.EvaluateConfig, "predict": PredictConfig},
    **{"export": ExportConfig, "simulate": SimulateConfig, "generate": GenerateConfig},
    "doctor": DoctorConfig,
}
GROUPS = (
    *("dataset", "partitioner", "cache_planner", "features", "sampler", "model", "optimizer"),
    *("loss", "task", "logger", "runtime", "device_plan", "platform", "board"),
    *("experiment", "algorithm"),
)
_ENTRY = re.compile(r"^ {4}(\w+(?:, \w+)*): (.*)$")
#: Groups whose choices are of no class, and how one is selected.
_SELECTED = {
    "experiment": "`config=NAME` selects one for `gnnscale train`.",
    "algorithm": "`algorithm=NAME` selects one for `gnnscale train`.",
    "logger": "`logger=NAME` selects one, `logger=[NAME,NAME]` several.",
}
#: Groups whose choices are of one class, which says nothing about them.
_ALIKE = {"device_plan"}
_CONSTANT = re.compile(r"``([A-Z][A-Z_]+)``")
_OPTION_COLUMNS = ("option", "type", "default", "meaning")
_TYPES = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false"}


@dataclass(frozen=True)
class Option:
    """An option of a class: its name after the group's, type, default and meaning."""

    name: str
    kind: str
    default: Any
    text: str


def attributes(cls: type[Any]) -> dict[str, str]:
    """Return what the docstrings of a class and of its bases say of each attribute."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        found |= _own_attributes(base)
    return found


def _own_attributes(cls: type[Any]) -> dict[str, str]:
    lines = (cls.__dict__.get("__doc__") or "").splitlines()
    start = next((i for i, line in enumerate(lines) if line.strip() == "Attributes:"), len(lines))
    found: dict[str, str] = {}
    names: list[str] = []
    for line in (each[4:] for each in lines[start + 1 :]):
        if match := _ENTRY.match(line):
            names = match[1].split(", ")
            found |= dict.fromkeys(names, match[2])
        elif line.startswith(" " * 8):
            for name in names:
                found[name] += " " + line.strip()
        elif line.strip():
            break
    return {name: _markdown(text, import_module(cls.__module__)) for name, text in found.items()}


def _markdown(text: str, module: types.ModuleType) -> str:
    """Turn a docstring's text into Markdown; names of constants become their values."""

    def values(match: re.Match[str]) -> str:
        value = getattr(module, match[1], (match[1],))
        return ", ".join(f"`{each}`" for each in value)

    text = _CONSTANT.sub(values, text).replace("``", "`")
    text = re.sub(r"\bNone\b", "null", text)
    return text[0].upper() + text[1:] if text[0].isalpha() else text


def type_name(hint: Any) -> str:
    if get_origin(hint) in (types.UnionType, typing.Union):
        parts = get_args(hint)
        return " or ".join("null" if each is type(None) else type_name(each) for each in parts)
    if get_origin(hint) is list:
        return f"list of {type_name(get_args(hint)[0])}s".replace("Anys", "devices")
    if get_origin(hint) is dict:
        return "options"
    name = getattr(hint, "__name__", str(hint))
    return _TYPES.get(name, name.lower() if name == "Path" else name)


def options_of(cls: type[Any], prefix: str = "") -> Iterator[Option]:
    """Yield the options of a class; those of a record within it have its name in front."""
    hints, texts = get_type_hints(cls), attributes(cls)
    for field in fields(cls):
        name, hint = field.name, hints[field.name]
        records = [each for each in (hint, *get_args(hint)) if is_dataclass(each)]
        if records:
            yield from options_of(records[0], f"{prefix}{name}.")
            continue
        if name not in texts:
            raise SystemExit(f"{cls.__module__}.{cls.__name__}.{name}: says nothing of itself")
        made = field.default_factory
        default = field.default if made is MISSING else made()
        yield Option(f"{prefix}{name}", type_name(hint), default, texts[name])


def first_line(cls: type[Any]) -> str:
    """Return the first sentence of a class's docstring."""
    text = (cls.__doc__ or "").split("\n\n")[0].strip()
    return _markdown(" ".join(text.split()), import_module(cls.__module__))


def shown(value: Any) -> str:
    if value is MISSING or value == "???":
        return "required"
    if value == "${usable_cores:}":
        return "all usable cores"
    text = json.dumps(value, default=str) if not isinstance(value, str) else value or "''"
    return f"`{text}`".replace('"', "")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def read(file: Path) -> dict[str, Any]:
    """Return a shipped YAML file, references unresolved."""
    return yaml.safe_load(file.read_text())


def comment(file: Path) -> str:
    """Return what the comment at the start of a YAML file says."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("_target_")]
    said = takewhile(lambda line: line.startswith("#"), lines)
    text = " ".join(line[1:].strip() for line in said if "@package" not in line)
    return re.sub(r"(gnnscale train -m \S+)", r"`\1`", text)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values under dotted names; lists stay whole."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        elif name != "_target_":
            found[f"{prefix}{name}"] = value
    return found


def command_section(name: str, cls: type[Any]) -> str:
    """Describe a command: its own options, and the groups that it takes."""
    content = read(CONFIGS / f"{name}.yaml")
    entries = [each for each in content["defaults"] if isinstance(each, dict)]
    chosen = {g: choice for each in entries for g, choice in each.items() if g[:9] != "override "}
    texts = attributes(cls)
    rows = _own_options(name)
    known: dict[str, list[str]] = {}  # options by the command that describes them
    for row in rows:
        first = next(each for each in _DESCRIBED_BY if row in _own_options(each))
        if first != name:
            known.setdefault(first, []).append(row[0])
    known = {first: options for first, options in known.items() if len(options) > 1}
    described = [option for options in known.values() for option in options]
    rows = [row for row in rows if row[0] not in described]
    header = content["hydra"]["help"]["header"].strip().split("\n")[0]
    parts = [f"## gnnscale {name}\n", f"{header}\n", table(_OPTION_COLUMNS, rows)]
    for first, options in known.items():
        parts.append(f"As in [{first}](#gnnscale-{first}): {', '.join(options)}.\n")
    if chosen:
        groups = ", ".join(f"[`{g}`](#{g}) ({shown(c).strip('`')})" for g, c in chosen.items())
        parts.append(f"Groups (default): {groups}.\n")
    if rest := [f.name for f in fields(cls) if f.name not in content and f.name not in chosen]:
        meaning = {each: f"{texts[each][0].lower()}{texts[each][1:-1]}" for each in rest}
        named = ", ".join(f"`{each}` ({text})" for each, text in meaning.items())
        parts.append(f"From Python alone ([extending.md](extending.md)): {named}.\n")
    # Options say where the others write.
    if (directory := content["hydra"]["run"]["dir"]) != ".":
        parts.append(f"Writes below `{directory}`.\n")
    return "\n".join(parts)


#: Commands in the order in which they are searched for the description of a shared option.
_DESCRIBED_BY = ("train", *(name for name in COMMANDS if name != "train"))


def _own_options(name: str) -> list[tuple[str, ...]]:
    """Return name, type, default and meaning of each option that is of a command itself."""
    cls, content = COMMANDS[name], read(CONFIGS / f"{name}.yaml")
    texts, hints = attributes(cls), get_type_hints(cls)
    return [
        (f"`{key}`", type_name(hints[key]), shown(value), texts[key])
        for key, value in content.items()
        if key not in ("defaults", "hydra")
    ]


def group_section(group: str) -> str:
    """Describe a group: every option of its classes, and what each choice sets."""
    files = sorted((CONFIGS / group).glob("*.yaml"))
    parts = [f"## {group}\n"]
    if group in _SELECTED:
        parts.append(f"{_SELECTED[group]}\n")
        parts.append(table(("name", "what"), [(f"`{f.stem}`", comment(f)) for f in files]))
        return "\n".join(parts)
    choices = {file.stem: read(file) for file in files}
    classes = {name: _class(content["_target_"]) for name, content in choices.items()}
    parts.append(_options_table(group, classes))
    if len(choices) > 1:
        parts.append(f"Choices of `{group}=`:\n")
        parts.append("\n".join(_choice(group, n, classes, choices[n]) for n in choices) + "\n")
    if group == "device_plan":
        parts += [_device_section(Cpu), _device_section(Emulated, known=Cpu)]
    return "\n".join(parts)


def _class(target: str) -> type[Any]:
    module, _, name = target.rpartition(".")
    return getattr(import_module(module), name)


def _options_table(group: str, classes: Mapping[str, type[Any]]) -> str:
    """One row for each option; classes that have it are named if not all do."""
    found: dict[tuple[str, str], list[tuple[type[Any], Option]]] = {}
    different = list(dict.fromkeys(classes.values()))
    for cls in different:
        for option in options_of(cls):
            found.setdefault((option.name, option.text), []).append((cls, option))
    rows = []
    for (name, text), same in found.items():
        default = " or ".join(dict.fromkeys(shown(option.default) for _, option in same))
        of = _names([cls for cls, _ in same], different)
        rows.append((f"`{group}.{name}`", same[0][1].kind, default, of, text))
    if not rows:
        return "Its choices have no options.\n"
    if not any(row[3] for row in rows):
        return table(_OPTION_COLUMNS, [(*r[:3], r[4]) for r in rows])
    return table(("option", "type", "default", "of", "meaning"), rows)


def _names(classes: Sequence[type[Any]], every: Sequence[type[Any]]) -> str:
    """Return the names of ``classes``, or of the others if there are fewer; empty for all."""
    others = [cls.__name__ for cls in every if cls not in classes]
    if 0 < len(others) < len(classes):
        return f"all but {', '.join(others)}"
    return ", ".join(cls.__name__ for cls in classes) if others else ""


def _choice(
    group: str, name: str, classes: Mapping[str, type[Any]], content: Mapping[str, Any]
) -> str:
    """Describe a choice; its class is described at the first choice of the class."""
    cls = classes[name]
    defaults = {option.name: option.default for option in options_of(cls)}
    sets = {k: v for k, v in flat(content).items() if k not in defaults or defaults[k] != v}
    values = ", ".join(f"`{key}={shown(value).strip('`')}`" for key, value in sets.items())
    if len(values) > 200:
        values = f"the values of `gnnscale/configs/{group}/{name}.yaml`"
    sentence = f"Sets {values}." if values else ""
    if group in _ALIKE:
        said = comment(CONFIGS / group / f"{name}.yaml")
        return f"- `{name}`: {' '.join(each for each in (said, sentence) if each)}"
    one = len(set(classes.values())) == 1
    first = next(each for each, other in classes.items() if other is cls)
    said = first_line(cls) if first == name and not one else ""
    title = f"- `{name}`" if one else f"- `{name}` ({cls.__name__})"
    return f"{title}: {' '.join(each for each in (said, sentence) if each)}"


def _device_section(cls: type[Device], known: type[Device] | None = None) -> str:
    """Describe the options of a kind of device, except those that ``known`` has as well."""
    names = set() if known is None else {option.name for option in options_of(known)}
    options = [option for option in options_of(cls) if option.name not in names]
    rows = [(f"`{o.name}`", o.kind, shown(o.default), o.text) for o in options]
    title = f"### Devices of kind `{cls.kind}`\n\n{first_line(cls)}\n"
    if issubclass(cls, Accelerator):
        title += f"\nIts figures are called *{cls.figures}*.\n"
    if known is not None:
        title += f"\nBesides the options of `{known.kind}`:\n"
    return f"{title}\n{table(_OPTION_COLUMNS, rows)}"


CONFIGURATION = """\
# Options

Every option of every command, as `gnnscale COMMAND --help` and `--help GROUP` list them.
[choosing-options.md](choosing-options.md) says what to choose when, and
[command-line.md](command-line.md) how options are written and swept.

A list is written `name=[1,2]`, a mapping `name={key:value}`, no value `name=null`.
`eval "$(gnnscale train --shell-completion install=bash)"` completes options. `gnnscale train` also
takes `config=NAME` (an [experiment](#experiment)) and `config=FILE.yaml` (your own).
"""
GOING_ON = """\
## Resuming

A resumed run has the options that it was started with, except for the following, which may have
other values (a group stands for all of its options):

{free}

With `optimizer.schedule=cosine` the epochs stay. With `runtime.deterministic=true`, before and now,
the options of plans stay:

{plan}
"""


def configuration() -> str:
    free = [f"`{name}`" for name in FREE_OPTIONS if name not in ("resume", "observers")]
    plan = [f"`{name}`" for name in FREE_OPTIONS if name in PLAN_OPTIONS]
    going_on = GOING_ON.format(free=", ".join(free), plan=", ".join(plan))
    parts = [NOTE + CONFIGURATION + "\n" + going_on]
    parts += [command_section(name, cls) for name, cls in COMMANDS.items()]
    parts += [group_section(group) for group in GROUPS]
    return "\n".join(parts)


def benchmarks() -> str:
    content = json.loads((ROOT / "docs" / "benchmarks.json").read_text())
    parts = [NOTE + "# Benchmarks\n", *(f"{each}\n" for each in content["text"])]
    parts.append(table(("machine", "what"), list(content["machines"].items())))
    for section in content["sections"]:
        parts.append(f"## {section['title']}\n")
        parts += [f"{each}\n" for each in section.get("before", ())]
        if section["rows"]:
            parts.append(_benchmark_table(section["rows"]))
        parts += [f"{each}\n" for each in section.get("after", ())]
    return "\n".join(parts)


_SHARED = ("kind", "machine", "date", "command")
_COLUMNS = ("what", "ours", "peer", "ratio", *_SHARED)


def _benchmark_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a row for each figure; what all rows have in common is a line above the table."""
    same = [name for name in _SHARED if len(rows) > 1 and len({row[name] for row in rows}) == 1]
    names = [name for name in _COLUMNS if any(row[name] is not None for row in rows)]
    names = [name for name in names if name not in same]
    shared = ", ".join(_figure(rows[0], name) for name in same if rows[0][name] is not None)
    content = table(names, [[_figure(row, name) for name in names] for row in rows])
    return f"All rows: {shared}.\n\n{content}" if shared else content


def _figure(row: Mapping[str, Any], name: str) -> str:
    value = row[name]
    if value is None:
        return ""
    if name == "peer":
        return f"{value['name']} {_with_unit(value['value'], row['unit'])}"
    if name == "ours":
        return _with_unit(value, row["unit"])
    if name == "ratio":
        return f"{value:g}x" if isinstance(value, (int, float)) else value
    return f"`{value}`" if name == "command" else str(value)


def _with_unit(value: Any, unit: str) -> str:
    text = f"{value:,}" if isinstance(value, (int, float)) else value
    return f"{text} {unit}".strip()


def architecture() -> str:
    """Return the page of the architecture, with tables of the packages that there are."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    for name, rows in (("packages", packages()), ("rooms", rooms())):
        begin = f"<!-- {name}: made by scripts/tools/make_docs.py from their docstrings -->\n"
        page = _with_table(page, name, begin, table(("package", "what"), rows))
    return page


def _with_table(page: str, name: str, begin: str, content: str) -> str:
    """Return ``page`` with ``content`` between ``begin`` and the end of ``name``."""
    end = f"<!-- end of {name} -->\n"
    before, rest = page.split(begin)
    return f"{before}{begin}{content}{end}{rest.split(end)[1]}"


#: Free memory of cards, in GB, as examples.
_CARDS = (24, 48, 80)
#: Published graphs of the examples: words, name, and how often an edge of the record is stored.
_EXAMPLES = (
    ("ogbn-products", "products", 1),
    ("ogbn-papers100M", "papers100m", 1),
    ("the same with reverse edges", "papers100m", 2),
)


def gpus() -> str:
    """Return the page of GPUs, with what cards of some sizes hold."""
    page = (ROOT / "docs" / "gpu.md").read_text()
    heads = ("graph", "lists", "rows", *(f"{size} GB" for size in _CARDS))
    cards = table(heads, [*card_rows()])
    heads = ("graph", "fan-outs", *(f"{seeds:,} seeds" for seeds in _SEEDS))
    batches = table(heads, [*batch_rows()])
    for name, content in (("cards", cards), ("batches", batches)):
        begin = f"<!-- memory of {name}: made by scripts/tools/make_docs.py -->\n\n"
        page = _with_table(page, f"memory of {name}", begin, f"{content}\n")
    return page


def scaling() -> str:
    """Return the picture of what ``gnnscale simulate`` predicts without options."""
    options, _ = compose("simulate")
    return draw(simulate(typed(options, SimulateConfig)))


def card_rows() -> Iterator[tuple[str, ...]]:
    """Yield lists and rows of each graph, and what the memory of each card has of them."""
    for words, name, copies in _EXAMPLES:
        graph = PUBLISHED[name]
        topology = 8 * (graph.num_vertices + 1) + 4 * copies * graph.num_edges
        for dtype, num_bytes in (("float32", 4), ("float16", 2)):
            features = num_bytes * graph.num_vertices * graph.num_features
            places = (_placed(topology, features, size * 10**9) for size in _CARDS)
            yield words, f"{_gb(topology)} GB", f"{dtype}, {_gb(features)} GB", *places


def _placed(topology: int, features: int, budget: int) -> str:
    """Return what a card with ``budget`` bytes free holds by default, in words."""
    lists, rows = Cuda(memory_bytes=budget).stores(topology=topology, features=features, reserved=0)
    found, left = ("lists" if lists else "neither"), budget - topology - features
    if rows:
        return "lists and rows"
    return found if left <= 0 else f"{found}; rows fit, {_gb(left)} GB left"


#: Seeds and fan-outs of the mini-batches of the examples.
_SEEDS = (1024, 8192)
_FANOUTS = ((25, 10), (15, 10, 5))


def batch_rows() -> Iterator[tuple[str, ...]]:
    """Yield what a mini-batch of GraphSAGE takes of a device's memory, by graph and fan-outs."""
    for words, name, _ in _EXAMPLES[:2]:
        for fanouts in _FANOUTS:
            model = GraphSAGE(hidden=256, num_layers=len(fanouts))
            graph = PUBLISHED[name]
            work = published_workload(graph, model, fanouts, batch_size=max(_SEEDS))
            work = replace(work, host_aggregates=False)
            sizes = (batch_bytes(work, graph.size(fanouts, seeds)) for seeds in _SEEDS)
            yield words, str(list(fanouts)), *(f"{_gb(size)} GB" for size in sizes)


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.2f}"


def packages() -> list[tuple[str, str]]:
    """Return what each package and module of ``gnnscale`` is, from the top layer to the bottom."""
    return [(f"`{name}`", _said(PACKAGE / name)) for name in _layers("gnnscale")]


def rooms() -> list[tuple[str, str]]:
    """Return what the packages within packages are, in the order of their layers if there are."""
    found = []
    for name in _layers("gnnscale"):
        inner = sorted(file.parent.name for file in (PACKAGE / name).glob("*/__init__.py"))
        layers = [e for e in _layers(f"gnnscale.{name}") or inner if e in inner]
        found += [(f"`{name}/{each}`", _said(PACKAGE / name / each)) for each in layers]
    return found


def _layers(container: str) -> list[str]:
    """Return the names in the layers of a package, from the top to the bottom."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    contracts = [each for each in settings["contracts"] if each["containers"] == [container]]
    layers = [layer for contract in contracts for layer in contract["layers"]]
    return [name.strip() for layer in layers for name in layer.split("|")]


def _said(path: Path) -> str:
    """Return the first sentence of a package's or a module's docstring."""
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text()))
    if text is None:
        raise SystemExit(f"{file}: says nothing of itself")
    first = " ".join(text.split("\n\n")[0].split())
    return first.split(". ")[0].removesuffix(".").replace("``", "`")


def meanings() -> str:
    """Return what options of commands and of classes mean, and choices of groups, as JSON."""
    commands = {name: attributes(cls) for name, cls in COMMANDS.items()}
    classes, choices = {}, {}
    for group in sorted(each.name for each in CONFIGS.iterdir() if any(each.glob("*.yaml"))):
        choices[group] = {}
        for file in sorted((CONFIGS / group).glob("*.yaml")):
            target = (read(file) or {}).get("_target_")
            text = comment(file) if target is None or group in _ALIKE else ""
            if target is not None:
                nested = {each.name: each.text for each in options_of(_class(target))}
                classes[target] = attributes(_class(target)) | nested
                text = text or first_line(_class(target))
            choices[group][file.stem] = text
    found = {"commands": commands, "classes": classes, "choices": choices}
    return json.dumps(found, indent=1, ensure_ascii=False).replace("`", "") + "\n"


def text_kind(cls: type[Any], name: str, hint: Any) -> str | None:
    """Return whether an option is a ``text``, a ``word`` of choices, ``texts`` or ``mixed``."""
    inner = get_args(hint) if get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    kinds = {each for each in inner if each is not type(None)}
    if kinds <= {str, Path}:
        return "word" if declared(cls, name) is None else "text"
    if kinds == {list[str]}:
        return "texts"
    return "mixed" if kinds & {str, Path, Any, list[str], list[Any]} else None


def texts_of(cls: type[Any], groups: Sequence[str], prefix: str = "") -> dict[str, str | None]:
    """Return the kinds of all options of a class by their dotted names, with those of ``groups``.

    The name of a mapping ends in a dot, and stands for all names in it.
    """
    found: dict[str, str | None] = {}
    hints = get_type_hints(cls)
    for field in fields(cls):
        name, hint = f"{prefix}{field.name}", hints[field.name]
        records = [each for each in (hint, *get_args(hint)) if is_dataclass(each)]
        if not prefix and field.name in groups:
            files = sorted((CONFIGS / field.name).glob("*.yaml"))
            targets = [read(file).get("_target_") for file in files]
            records += [_class(each) for each in dict.fromkeys(targets) if each is not None]
        mapping = next((each for each in (hint, *get_args(hint)) if get_origin(each) is dict), None)
        if mapping is not None:
            _merge(found, f"{name}.", "text" if get_args(mapping)[1] is str else "mixed")
        elif Any in (hint, *get_args(hint)) and declared(cls, field.name) == "text":
            # A text, or a mapping of texts.
            _merge(found, name, "text")
            _merge(found, f"{name}.", "mixed")
        elif not records:
            _merge(found, name, text_kind(cls, field.name, hint))
        elif get_origin(hint) is not list:
            for record in records:
                for inner, kind in texts_of(record, (), f"{name}.").items():
                    _merge(found, inner, kind)
    return found


def _merge(found: dict[str, str | None], name: str, kind: str | None) -> None:
    """Note the kind of an option; classes of a group may have another of the same name."""
    if name not in found or found[name] == kind:
        found[name] = kind
    else:
        found[name] = "text" if {found[name], kind} == {"text", "word"} else "mixed"


def texts() -> str:
    """Return the options of each command whose values may be texts, as JSON."""
    found = {}
    for name, cls in COMMANDS.items():
        entries = [each for each in read(CONFIGS / f"{name}.yaml")["defaults"] if each != "_self_"]
        groups = [each for entry in entries for each in entry if not each.startswith("override ")]
        kinds = texts_of(cls, groups)
        found[name] = {option: kind for option, kind in kinds.items() if kind is not None}
    return json.dumps(found, indent=1) + "\n"


PAGES = {"docs/configuration.md": configuration, "docs/benchmarks.md": benchmarks}
PAGES |= {"docs/architecture.md": architecture, "gnnscale/cli/meanings.json": meanings}
PAGES["gnnscale/cli/texts.json"] = texts
PAGES |= {"docs/gpu.md": gpus, "docs/scaling.svg": scaling}


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or compare them with what would be written."""
    status = 0
    for name, make in PAGES.items():
        file, text = ROOT / name, make()
        if arguments == ["--check"]:
            if not file.exists() or file.read_text() != text:
                print(f"{file}: not current; run python scripts/tools/make_docs.py")
                status = 1
            continue
        file.write_text(text)
        print(file)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
