"""Texts of files and options that end in another program's input: refused, or without effect.

The walk finds fields by itself: every text of a record, of a YAML file that ships, or of JSON.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import partial
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from generated_designs import U250, write_design
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from printed import on_console

from gnnscale.core.config.typed import typed
from gnnscale.core.errors import ConfigError
from gnnscale.core.metrics import count_classes
from gnnscale.fpga_design import GenerateConfig, generate
from gnnscale.fpga_design import package as files
from gnnscale.fpga_design.design import read_design
from gnnscale.inference.export.module_export import literal
from gnnscale.partition import Hash, make_partition, read_partition
from gnnscale.planner.fpga_board import Board, board_values
from gnnscale.planner.platform import ThisMachine
from gnnscale.planner.simulator import SimulateConfig, simulate
from gnnscale.report import fpga_design as design_report
from gnnscale.report import partition as partition_report
from gnnscale.report import simulate as simulation_report
from gnnscale.report.sweep import SweepReport
from gnnscale.run.records import GraphStats

#: What acts in a Makefile, a shell, Tcl, C++, YAML, HTML and SVG, or on a terminal.
HOSTILE = (
    *("$(shell touch acted)", "${shell touch acted}", "`touch acted`", "[exec touch acted]"),
    *("a;touch acted", "a|touch acted", "a&touch acted", "a>acted", "a #b", "a\\", "a\\\nb"),
    *("a\nb: c", "a\rb", "a\u2028b: c", "a\tb", '"a', "'a", "{a", "a}", "$a", "%a", "a\x1b[2J"),
    *("</script><script>alert(1)</script>", "--><b>a</b>", '"><img src=x onerror=alert(1)>'),
    *("*/ int a; /*", "\n#include </etc/passwd>\n", "-o acted", "@acted", "!include a", "größer"),
    *("[/b]", "[bold]a", "a??/", "=cmd|'a'!A1"),
)
#: All at once, for what escapes and does not refuse.
EVERYTHING = "'\"><script>alert(1)</script><img src=x onerror=alert(1)>&amp;[/b][bold]$a\\`größer`"
CONFIGS = resources.files("gnnscale.configs")


def texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, str):
        yield path
    elif is_dataclass(value):
        for each in fields(value):
            if each.init:
                yield from texts(getattr(value, each.name), (*path, each.name))
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from texts(each, (*path, key))
    elif isinstance(value, (list, tuple)):
        for index, each in enumerate(value):
            yield from texts(each, (*path, index))


def changed(value: Any, path: tuple[Any, ...], text: str) -> Any:
    if not path:
        return text
    first, rest = path[0], path[1:]
    if is_dataclass(value):
        return replace(value, **{first: changed(getattr(value, first), rest, text)})
    if isinstance(value, dict):
        return value | {first: changed(value[first], rest, text)}
    items = [changed(each, rest, text) if at == first else each for at, each in enumerate(value)]
    return type(value)(items)


def kinds(value: Any) -> list[tuple[Any, ...]]:
    """The paths to texts, one for those that differ in indices alone."""
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for path in texts(value):
        found.setdefault(tuple(each for each in path if not isinstance(each, int)), path)
    return list(found.values())


def refusal(run: Callable[[], object]) -> str | None:
    try:
        run()
    except ConfigError as error:
        return str(error)
    return None


class Outline(HTMLParser):
    """Elements and their attributes, and what scripts and styles hold, without any text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[Any] = []
        self._raw = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, [name for name, _ in attrs]))
        self._raw = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.found.append((f"/{tag}",))
        self._raw = False

    def handle_data(self, data: str) -> None:
        if self._raw:
            self.found.append(data)

    def handle_comment(self, data: str) -> None:
        self.found.append(("comment", data))


def outline(page: str) -> list[Any]:
    return Outline(page).found


def shape(picture: str) -> list[Any]:
    return [(each.tag, sorted(each.attrib)) for each in ElementTree.fromstring(picture).iter()]


def plain(text: str) -> str:
    """A harmless text of the same length, that breaks as the other does."""
    return re.sub(r"\S", "x", text)


WRITERS: dict[str, Callable[[Any], str]] = {
    "gnnscale_design.hpp": files.constants,
    "connectivity.cfg": files.connectivity,
    "design.mk": partial(files.make_constants, header=True),
    "design.tcl": lambda design: files.tcl_constants(
        design, dict.fromkeys(files.PORTS, 1), header=True
    ),
    "train.yaml": lambda design: files.host_configuration(
        design, groups={}, options={}, cards=1, memory_bytes=1, link_bandwidth=1.0
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("path", list(texts(U250)), ids=str)
def test_no_text_of_a_design_acts_in_its_files(path: tuple[Any, ...], tmp_path: Path) -> None:
    write_design(tmp_path)
    design = json.loads((tmp_path / "design.json").read_text())
    for text in HOSTILE:
        with pytest.raises(ConfigError):
            changed(U250, path, text)
        # Nor one that no check has seen.
        unchecked, hostile = copy.copy(U250), changed(getattr(U250, path[0]), path[1:], text)
        object.__setattr__(unchecked, path[0], hostile)
        for write in WRITERS.values():
            with pytest.raises(ConfigError):
                write(unchecked)
        (tmp_path / "design.json").write_text(json.dumps(changed(design, path, text)))
        with pytest.raises(ConfigError) as error:
            read_design(tmp_path)
        assert str(error.value).isprintable()


def of_file(folder: Path, values: Any) -> Board:
    file = folder / "board.yaml"
    file.write_text(yaml.safe_dump(values, allow_unicode=True))
    return typed(OmegaConf.create(board_values(file)), Board, group="board")


@pytest.fixture(scope="module")
def generated() -> Any:
    with initialize_config_module("gnnscale.configs", version_base="1.3"):
        return generate(typed(compose("generate", ["model.hidden=32"]), GenerateConfig))


def shipped_board(num_dies: int = 4) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((CONFIGS / "board" / "u250.yaml").read_text())
    del values["_target_"]
    return values | {"dies": values["dies"][:num_dies]}


ONE_DIE = shipped_board(num_dies=1)


@pytest.mark.long
@pytest.mark.parametrize("path", kinds(ONE_DIE), ids=str)
def test_texts_of_a_board_are_words_or_prose(path: tuple[Any, ...], tmp_path: Path) -> None:
    for text in HOSTILE:
        refused = refusal(partial(of_file, tmp_path, changed(ONE_DIE, path, text)))
        assert refused is None or refused.isprintable()
        # Prose is in no file but those that escape it: see below.
        assert refused is not None or path[0] == "sources", text


@pytest.mark.long
def test_no_text_of_a_board_acts_in_a_design(generated: Any, tmp_path: Path) -> None:
    unchanged = outline(design_report.page(generated))
    for text in ("; ".join(each for each in HOSTILE if each.isprintable()), EVERYTHING):
        values = shipped_board()
        for path in texts(values):
            hostile = changed(values, path, text.replace("${", "$("))
            if refusal(partial(of_file, tmp_path, hostile)) is None:
                values = hostile
        board = of_file(tmp_path, values)
        made = replace(generated, exploration=replace(generated.exploration, board=board))
        assert outline(design_report.page(made)) == unchanged
        assert json.loads(json.dumps(design_report.describe(made)))["sources"] == values["sources"]
        made.write(tmp_path / "design", groups={}, options={"model": {"name": text}})
        for name in WRITERS.keys() - {"train.yaml"}:
            assert text not in (tmp_path / "design" / name).read_text()
        train = yaml.safe_load((tmp_path / "design" / "train.yaml").read_text())
        assert train["model"] == {"name": text}
        assert set(train) == {"defaults", "model", "device_plan"}


def test_names_of_keys_of_a_board_are_known(tmp_path: Path) -> None:
    for place in ((), ("dies", 0), ("dies", 0, "has")):
        values = copy.deepcopy(ONE_DIE)
        inner: Any = values
        for each in place:
            inner = inner[each]
        inner["$(shell touch acted)"] = 1
        with pytest.raises(ConfigError):
            of_file(tmp_path, values)


@pytest.fixture(scope="module")
def described_run(make_run: Any) -> Any:
    """A run of a graph with names of classes, and what was found for each of them."""
    counts = count_classes(np.eye(2)[[0, 1, 1]], np.array([0, 0, 1]))
    sizes = {"num_vertices": 3, "num_edges": 7, "num_features": 2, "num_classes": 2}
    graph = GraphStats(
        **sizes, feature_dtype="float32", split_of="vertices", split=(1, 1, 1), classes=["a", "b"]
    )
    run = make_run(num_epochs=1, steps_per_epoch=10)
    return replace(run, started=replace(run.started, graph=graph, test_classes=counts))


@pytest.mark.long
def test_no_text_of_a_run_acts_in_its_page(described_run, write_run, tmp_path) -> None:
    hybrid_run = described_run
    walked = 0
    parts = {"started": hybrid_run.started, "epochs": hybrid_run.epochs, "steps": hybrid_run.steps}
    for part, record in parts.items():
        for path in kinds(record):
            pages = []
            for text in (plain(EVERYTHING), EVERYTHING):
                try:
                    run = replace(hybrid_run, **{part: changed(record, path, text)})
                    page, summary = write_run(tmp_path / f"{part}{walked}{len(pages)}", run)
                except (ConfigError, KeyError, ValueError):
                    break  # it is one of some known words
                pages.append(outline(page))
                assert json.loads(json.dumps(summary)) == summary
            walked += len(pages) == 2
            assert not pages or pages[0] == pages[-1], path
    assert walked > 5
    paths = kinds(hybrid_run.started)
    assert ("graph", "classes", 0) in paths


@pytest.mark.long
def test_no_option_acts_in_the_page_of_a_run(cpu_run: Any, write_run: Any, tmp_path: Path) -> None:
    shipped = {
        file.name: yaml.safe_load(file.read_text())
        for folder in CONFIGS.iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".yaml")
    }
    assert len(shipped) > 50
    pages = []
    for text in (plain(EVERYTHING), EVERYTHING):
        options: Any = shipped
        for path in texts(shipped):
            options = changed(options, path, text)
        command = f"gnnscale train dataset.name={text}"
        directory = tmp_path / str(len(pages))
        page, _ = write_run(directory, cpu_run, command=command, files=options)
        pages.append(page)
        assert json.loads((directory / "summary.json").read_text())["command"] == command
    assert outline(pages[0]) == outline(pages[1])


@pytest.mark.long
def test_no_text_of_a_platform_acts_in_a_simulation(tmp_path: Path) -> None:
    shipped = yaml.safe_load((CONFIGS / "platform" / "epyc7763_a5000_x4.yaml").read_text())
    del shipped["_target_"]
    file = tmp_path / "platform.yaml"
    with initialize_config_module("gnnscale.configs", version_base="1.3"):
        options = compose("simulate", ["accelerators=[1]", "graph=reddit", "hybrid=false"])
        config = typed(options, SimulateConfig)

    def scaling(values: Any) -> Any:
        file.write_text(yaml.safe_dump(values, allow_unicode=True))
        return simulate(replace(config, platform=ThisMachine(file=file)))

    pictures = []
    for text in (plain(EVERYTHING), EVERYTHING):
        values = shipped
        for path in texts(shipped):
            file.write_text(yaml.safe_dump(changed(shipped, path, text), allow_unicode=True))
            refused = refusal(ThisMachine(file=file).open)
            if refused is None:
                values = changed(values, path, text)
            else:
                assert refused.startswith(str(file))
        assert values["name"] == text
        found = scaling(values)
        assert json.loads(json.dumps(simulation_report.describe(found)))["platform"] == text
        on_console(simulation_report.print_scaling, found, width=400)
        pictures.append(shape(simulation_report.draw(found)))
    assert pictures[0] == pictures[1]
    # What a terminal acts on is in no file of options.
    file.write_text(yaml.safe_dump(shipped | {"name": "a\x1b[2J"}))
    with pytest.raises(ConfigError, match=re.escape(str(file))):
        ThisMachine(file=file).open()


def test_no_text_of_a_partition_acts_in_its_picture(tmp_path, monkeypatch, random_graph) -> None:
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path))
    graph = random_graph()
    path = make_partition(Hash(), graph, num_parts=2, num_hops=2, num_threads=1)
    made = read_partition(path, graph)
    for at in kinds(made.figures):
        pictures = []
        for text in (plain(EVERYTHING), EVERYTHING):
            hostile = copy.copy(made)
            object.__setattr__(hostile, "figures", changed(made.figures, at, text))
            pictures.append(shape(partition_report.draw(hostile, graph=text)))
            on_console(partition_report.print_partition, hostile, graph=text, width=200)
        assert pictures[0] == pictures[1]


def test_no_text_of_a_job_acts_in_the_page_of_a_sweep(tmp_path, capsys) -> None:
    summary = {"status": "completed", "epochs": 1, "best_epoch": 1, "metric": "accuracy"}
    summary |= {"valid_metric": 0.5, "test_metric": 0.5, "mteps": 1.0, "figures": "measured"}
    summary |= {"epoch_time_s": {"mean": 1.0, "median": 1.0}, "dataset": "a", "error": "b"}
    pages: dict[Any, list[Any]] = {}
    for text in (plain(EVERYTHING), EVERYTHING):
        for path in [*texts(summary), None]:
            directory = tmp_path / f"{len(pages)}{path}{text == EVERYTHING}"
            for number in range(2):
                folder = directory / str(number)
                (folder / ".hydra").mkdir(parents=True)
                override = f"dataset.name={number}{text if path is None else ''}"
                OmegaConf.save(OmegaConf.create([override]), folder / ".hydra" / "overrides.yaml")
                (folder / ".hydra" / "hydra.yaml").write_text(f"hydra: {{job: {{num: {number}}}}}")
                (folder / "config.yaml").write_text("seed: 0\n")
                values = summary if path is None else changed(summary, path, text)
                (folder / "summary.json").write_text(json.dumps(values))
            hydra = OmegaConf.create({"hydra": {"sweep": {"dir": str(directory)}}})
            with pytest.raises(SystemExit) if path == ("status",) else pytest.MonkeyPatch.context():
                SweepReport().on_multirun_end(hydra)
            page = (directory / "report.html").read_text()
            picture = (directory / "results.svg").read_text()
            pages.setdefault(path, []).append((outline(page), shape(picture)))
    for path, (harmless, hostile) in pages.items():
        assert harmless[0] == hostile[0], path
        assert harmless[1] == hostile[1], path


def test_a_path_in_a_program_of_python_is_that_path() -> None:
    for text in (*HOSTILE, "𝄞", "\udcff"):
        written = literal(Path(text))
        assert written.isascii()
        assert written.isprintable()
        assert eval(written) == str(Path(text))
