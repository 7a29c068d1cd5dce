"""README.md and docs/ are correct: links lead somewhere, names exist, quotes match their files."""

import ast
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from benchmarks import draw_caches
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from tools import make_docs

from gnnscale.cli.commands.tasks import take_graph
from gnnscale.core.config.typed import typed
from gnnscale.core.config.user_code import GROUPS
from gnnscale.core.hardware import usable_cores
from gnnscale.core.stages import STAGES, Access
from gnnscale.graph import FEATURE_DTYPES
from gnnscale.graph import store_format as graph_store
from gnnscale.partition.store import PARTITION
from gnnscale.planner import Cpu, DevicePlan, DeviceShare, Threads, device_plan
from gnnscale.report.summary import summarize
from gnnscale.run import artifacts as run_artifacts
from gnnscale.run.checkpoint import file as checkpoint_file
from gnnscale.run.records import DeviceEpoch, EpochRecord, RunLayout, TrainResult

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
INDEX = ROOT / "docs" / "index.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = [
    *(README, CONTRIBUTING, ROOT / "CHANGELOG.md", ROOT / "fpga" / "README.md"),
    *sorted((ROOT / "docs").glob("*.md")),
]
#: The changelog names what is gone.
CURRENT = [page for page in PAGES if page.name != "CHANGELOG.md"]
#: Pages made by programs, or tables that tests compare with the code.
MADE = {"benchmarks.md", "configuration.md", "paper-map.md", "paper-results.md"}
WRITTEN = [page for page in PAGES if page.name not in MADE]
CODE = [
    path
    for folder in ("gnnscale", "tests", "scripts", "native", "fpga", "examples", ".ci")
    for path in (ROOT / folder).rglob("*")
]

#: Names in pages that no file of the project has: scikit-learn's.
OTHERS = {
    *("accuracy_score", "average_precision_score", "f1_score", "roc_auc_score"),
    "root_mean_squared_error",
}
#: Where the choices of a group are described, one by one.
CHOICES = {"dataset": "data", "partitioner": "partitions", "cache_planner": "caches"}
CHOICES |= dict.fromkeys(("loss", "logger", "optimizer"), "training")
CHOICES |= dict.fromkeys(("sampler", "model"), "choosing-options")

each_page, each_current = (
    pytest.mark.parametrize("page", pages, ids=lambda page: str(page.relative_to(ROOT)))
    for pages in (PAGES, CURRENT)
)


def blocks(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the language and the lines of each fenced block."""
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S):
        yield match[1], match[2].splitlines()


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """Names of the headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {title.replace(" ", "-") for title in plain}


@pytest.mark.long
@pytest.mark.parametrize("name", make_docs.PAGES)
def test_a_page_that_is_made_is_what_its_sources_make(name: str) -> None:
    assert (ROOT / name).read_text() == make_docs.PAGES[name]()


def test_no_command_is_said_to_write_below_the_working_directory_itself() -> None:
    assert "Writes below `.`" not in (ROOT / "docs" / "configuration.md").read_text()


def text_blocks(page: Path) -> Iterator[str]:
    """Yield paragraphs and list items; no code, tables, headings or comments."""
    text = re.sub(r"<!--.*?-->", "", prose(page), flags=re.S)
    for paragraph in re.split(r"\n\s*\n", text):
        for block in re.split(r"\n(?=\s*(?:[-*]|\d+\.) )", paragraph.strip()):
            if block and not block.startswith(("|", "#")):
                yield block


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_are_short(page: Path) -> None:
    long = [block for block in text_blocks(page) if len(block.split()) > 80]
    assert [f"{len(block.split())} words: {block[:60]}" for block in long] == []


@pytest.mark.parametrize(
    "page",
    [page for page in WRITTEN if page in CURRENT and page.parent.name != "fpga"],
    ids=lambda page: page.name,
)
def test_pages_are_short(page: Path) -> None:
    limit = 1600 if page.name == "run-directory.md" else 1500
    assert len(page.read_text().split()) <= limit


def test_the_readme_is_short() -> None:
    assert len(README.read_text().split()) <= 1000


def test_what_is_installed_by_the_pages_is_what_was_tested() -> None:
    of_pages = [lines for page in (README, CONTRIBUTING) for _, lines in blocks(page)]
    lines = [line for each in of_pages for line in each]
    commands = [line for line in lines if re.search(r"pip install .*(?: \.| '\.\[)", line)]
    assert len(commands) == 3
    assert all("-c constraints.txt" in line for line in commands)


def test_tested_releases_are_no_requirement() -> None:
    metadata = (ROOT / "pyproject.toml").read_text()
    (torch,) = re.findall(r'^  "(torch\b[^"]*)"', metadata, re.M)
    assert torch == "torch>=2.6"
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    limits = [re.fullmatch(r"([\w-]+)<[\d.]+", line) for line in lines if line[0] != "#"]
    for limit in limits:
        assert limit is not None
        assert re.search(rf'"{limit[1]}[>=]', metadata), limit[1]


@each_page
def test_tables_are_whole(page: Path) -> None:
    """A blank line, or a cell too many, makes text of a table."""
    blocks = re.findall(r"(?:^\|.*\n)+", f"{prose(page)}\n", re.M)
    assert blocks or page.name not in ("README.md", "paper-map.md")
    for block in blocks:
        _, rule, *rows = lines = block.splitlines()
        assert re.fullmatch(r"\|(?: ?-+ ?\|)+", rule), f"no head above: {lines[0]}"
        assert rows
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1, block


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"(?:\]\(|<img src=\")([^)\"]+)", prose(page)):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        found = page.parent / file if file else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


def test_the_index_has_every_page_once() -> None:
    linked = re.findall(r"^- \[[^]]+\]\(([\w-]+\.md)\): ", INDEX.read_text(), re.M)
    assert sorted([*linked, INDEX.name]) == sorted(p.name for p in INDEX.parent.glob("*.md"))


def test_the_readme_has_few_links_and_leads_to_the_index() -> None:
    links = re.findall(r"(?<!!)\[[^]]+\]\(([^)]+)\)", README.read_text())
    assert len(links) <= 8
    assert "docs/index.md" in links


def test_the_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    rows = re.findall(r"^\| (.+) \| ([\d.]+)x (\w+) \| `(.+)` \|$", README.read_text(), re.M)
    sections = json.loads((ROOT / "docs" / "benchmarks.json").read_text())["sections"]
    measured = []
    for row in (row for section in sections for row in section["rows"]):
        if row["kind"] == "measured":
            peer = (row["peer"] or {}).get("name", "").split(" ")[0]
            measured.append((row["what"], row["ratio"], peer, row["command"]))
    assert len(rows) == 4
    assert any("H100" in what for what, *_ in rows)
    for what, ratio, peer, command in rows:
        assert (what, float(ratio), peer, command) in measured, what


@pytest.mark.long
@each_current
def test_files_that_are_named_exist(page: Path) -> None:
    known = "\n".join(f"/{path.relative_to(ROOT).as_posix()}\n" for path in CODE)
    for token in re.findall(r"`([^`\n]+)`", prose(page)):
        for name in re.findall(r"(?<![\w.])[\w./-]*\w\.(?:py|hpp|cpp|sh)(?![\w.])", token):
            assert name in ("mine.py", "FILE.py", "gnnscale_design.hpp") or f"/{name}\n" in known, (
                name
            )
        folder = re.fullmatch(r"(?:gnnscale|tests|scripts|native)/[\w/]*", token)
        assert not folder or (ROOT / token).exists(), token


@pytest.fixture(scope="module")
def words() -> set[str]:
    """Every word of the project's files but those of pages."""
    kinds = ("", ".py", ".hpp", ".cpp", ".yaml", ".sh")
    files = [path for path in CODE if path.is_file() and path.suffix in kinds]
    assert len(files) > 900
    text = "\n".join(path.read_text() for path in files if path != Path(__file__))
    return {*re.findall(r"\w+", text), *(path.stem for path in CODE)}


@pytest.mark.long
@each_current
def test_names_are_those_of_the_code(page: Path, words: set[str]) -> None:
    for name in re.findall(r"`([a-z]+(?:_[a-z0-9]+)+)`", prose(page)):
        assert name in words or name in OTHERS, name


@pytest.mark.long
@each_current
def test_options_are_those_that_there_are(page: Path) -> None:
    known = {group: _options(group) for group in make_docs.GROUPS}
    for span in re.findall(r"`([^`\n]+)`", prose(page)):
        for word in span.split():
            match = re.match(r"['\"]?(\w+)\.([a-z_]+(?:\.[a-z_]+)*)(=|$)", word)
            is_file = re.search(r"\.(?:hpp|npy|yaml|\w+rs)$", word)
            if match is None or match[1] not in known or is_file:
                continue
            option = match[2].split(".")[0] if match[1] == "model" else match[2]
            assert option in known[match[1]], word


def _options(group: str) -> set[str]:
    """Return the names of all options of a group's choices."""
    found = set()
    for file in (make_docs.CONFIGS / group).glob("*.yaml"):
        content = make_docs.read(file)
        if "_target_" in content:
            of_class = make_docs.options_of(make_docs._class(content["_target_"]))
            found |= {option.name for option in of_class} | set(make_docs.flat(content))
    return found


@pytest.mark.parametrize("group", CHOICES)
def test_every_choice_is_described(group: str) -> None:
    spans = re.findall(r"`([^`\n]+)`", prose(ROOT / "docs" / f"{CHOICES[group]}.md"))
    named = {span.removeprefix(f"{group}=") for span in spans}
    assert {file.stem for file in (make_docs.CONFIGS / group).glob("*.yaml")} - {"none"} <= named


def test_formats_are_those_that_are_written() -> None:
    def row(page: str, name: str) -> str:
        (cell,) = re.findall(rf"^\| `{name}` \| (.*) \|$", (ROOT / "docs" / page).read_text(), re.M)
        return str(cell)

    assert row("data.md", "format_version") == str(graph_store.GRAPH_STORE.version)
    assert re.findall(r"`(\w+)`", row("data.md", "metric")) == [*graph_store.METRICS]
    assert re.findall(r"`(\w+)`", row("data.md", "feature_dtype")) == [*FEATURE_DTYPES]
    assert row("partitions.md", "format_version") == str(PARTITION.version)
    runs = (ROOT / "docs" / "run-directory.md").read_text()
    assert f"format version {checkpoint_file.FORMAT_VERSION};" in runs


def test_every_array_of_a_store_is_described() -> None:
    page = (ROOT / "docs" / "data.md").read_text()
    for array in (*graph_store.ARRAYS, graph_store.DEGREES, *graph_store.EDGE_ARRAYS):
        assert f"`{array}.npy`" in page, array


def test_the_architecture_names_every_artifact() -> None:
    kinds = {name: each for name, each in vars(run_artifacts).items() if name.isupper()}
    names = {kind for kind in kinds.values() if isinstance(kind, str)}
    page = (ROOT / "docs" / "architecture.md").read_text()
    (row,) = re.findall(r"^\| artifact \| `[^`]+` \| (.*?) \|", page, re.M)
    assert set(row.split(", ")) == names


@pytest.mark.parametrize(
    "file", sorted((make_docs.CONFIGS / "algorithm").glob("*.yaml")), ids=lambda file: file.stem
)
def test_algorithms_are_what_their_files_say(file: Path) -> None:
    content = yaml.safe_load(file.read_text())
    defaults = [item for each in content.pop("defaults") for item in each.items()]
    chosen = {name.removeprefix("override /"): value for name, value in defaults}
    text = (ROOT / "docs" / "partitions.md").read_text()
    partitioner, more = re.findall(rf"^\| `{file.stem}` \| `(\w+)` \| (.*?)\|", text, re.M)[0]
    assert partitioner == chosen.pop("partitioner")
    values = {name: str(value).lower() for name, value in make_docs.flat(content).items()}
    values = {name: value for name, value in values.items() if not value.startswith("${")}
    assert dict(re.findall(r"`([\w.]+): (\w+)`", more)) == chosen | values
    limits = (ROOT / "docs" / "limits.md").read_text()
    assert "cache_planner" not in chosen or f"algorithm={file.stem}" not in limits


def test_every_difference_from_a_paper_has_its_reason_and_its_test() -> None:
    text = (ROOT / "docs" / "paper-map.md").read_text()
    differences = text.split("## What differs from the papers\n")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in differences.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 9
    for paper, there, here, reason, code, test in rows:
        assert all((paper, there, here, reason)), paper
        assert "`gnnscale." in code, paper
        assert "`tests/" in test, paper


def test_every_function_and_test_of_the_paper_map_exists() -> None:
    text = (ROOT / "docs" / "paper-map.md").read_text()
    names, tests = re.findall(r"`(gnnscale\.[\w.]+)`", text), re.findall(r"`(tests/[^`]+)`", text)
    assert len(names) > 40
    for name in names:
        assert _found(name), name
    for test in tests:
        file, _, function = test.partition("::")
        tree = ast.parse((ROOT / file).read_text())
        defined = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
        assert function in defined, test


def test_every_native_function_of_the_paper_map_is_in_its_file() -> None:
    text = (ROOT / "docs" / "paper-map.md").read_text()
    places = re.findall(r"`([\w/]+\.cpp)`: ((?:`[\w:]+`(?:, )?)+)", text)
    assert len(places) > 10
    for name, functions in places:
        file = ROOT / name if name.startswith("native/") else ROOT / "native" / "src" / name
        for function in re.findall(r"(\w+)`", functions):
            assert re.search(rf"\b{function}\(", file.read_text()), f"{name}: {function}"


def _found(name: str) -> bool:
    """Whether a dotted name is one of a module, or of a class or function in it."""
    parts = name.split(".")
    for length in range(len(parts), 1, -1):
        try:
            found: Any = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part, None)
        return found is not None
    return False


@each_current
def test_quotes_are_what_their_files_say(page: Path) -> None:
    for language, lines in blocks(page):
        if language != "python" or not lines[0].startswith("# "):
            continue
        if lines[0].startswith("# File "):  # the reader's own
            continue
        source = (ROOT / lines[0][2:]).read_text()
        at = 0
        for part in "\n".join(lines[1:]).split("\n...\n"):
            found = f"\n{source}".find(f"\n{part}\n", at)
            assert found >= 0, f"{lines[0]}: {part}"
            at = found + len(part)


@pytest.mark.long
@each_current
def test_commands_compose(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_plan, "find_all_gpus", lambda: 2)
    OmegaConf.register_new_resolver("usable_cores", usable_cores, replace=True)
    lines = [line for language, lines in blocks(page) if not language for line in lines]
    with initialize_config_module("gnnscale.configs", version_base="1.3"):
        for line in lines:
            words = shlex.split(line, comments=True)
            # A resumed run has the options of its own file.
            if words[:1] == ["gnnscale"] and not any(each.startswith("resume=") for each in words):
                _compose(words[1], words[2:])


def _compose(command: str, words: list[str]) -> None:
    """Let Hydra take the options of a command line; of a sweep, the first of each."""
    sweeps = "-m" in words
    options = []
    for word in words:
        name, _, value = word.partition("=")
        is_flag = word.startswith("-") or word == "job"  # --cfg job
        if (
            is_flag
            or name in ("resume", "run", "store", "output", "log")
            or name.startswith("hydra")
        ):
            continue
        if value.startswith(("tag(", "interval(")) or value.endswith(".yaml"):  # of the reader's
            continue
        if not sweeps and name in (*GROUPS, "metrics") and ".py:" in value:  # likewise
            continue
        value = value.split(",")[0] if sweeps else value
        options.append(f"{'experiment' if name == 'config' else name}={value}")
    if any("=LAYOUT" in each or "=..." in each for each in options):
        return
    of_a_run = command in ("evaluate", "predict", "export")
    node = compose(command, [*options, *(["run=DIR"] if of_a_run else [])])
    if command == "predict":
        take_graph(node)
    typed(node, make_docs.COMMANDS[command])


@pytest.mark.long
def test_no_page_denies_that_a_gpu_was_used() -> None:
    """A card was used: pages, docstrings and options name what has not run on one."""
    denied = re.compile(
        r"(no gpu (?:and no fpga )?(?:was|has been) (?:ever )?(?:used|measured)|never run on a gpu"
        r"|not been tried on a card|run on a card yet|written for a gpu and untested"
        r"|no figure here is one of a gpu)",
        re.I,
    )
    texts = [path for path in CODE if path.suffix in (".py", ".yaml", ".md", ".json")]
    for file in (*CURRENT, ROOT / "cuda" / "README.md", *texts):
        if file != Path(__file__):
            assert not denied.search(" ".join(file.read_text().split())), file


def test_every_figure_of_a_card_in_the_benchmarks_is_that_of_its_file() -> None:
    """Rows of the H100 repeat figures of ``gpu.json``, rounded."""
    found = json.loads((ROOT / "docs" / "gpu.json").read_text())
    values = {name: each["value"] for name, each in found["values"].items()}
    sections = json.loads((ROOT / "docs" / "benchmarks.json").read_text())["sections"]
    rows = [row for each in sections for row in each["rows"] if row["machine"] == "h100"]
    shown = {(row["what"].split(",")[0], row["command"].split()[-1]): row for row in rows}
    assert {row["date"] for row in rows} == {found["date"]}
    for (what, section), name, scale in (
        (("GraphSAGE training epoch on an NVIDIA H100", "epoch"), "epoch.seconds", 1),
        (("energy of an epoch", "step"), "step.joules", 1),
        (("an epoch of GAT", "step"), "step.gat_epoch", 1),
        (("features at the host", "step"), "cache.epoch", 1),
        (("sampling and relabeling queued by the host", "sample"), "sample.edges_per_s", 1e-6),
        (("rows of 400 bytes gathered over the link", "gather"), "gather.link", 1e-9),
        (("exact inference of 2.4 M vertices", "beside"), "inference.card", 1),
    ):
        assert shown[what, section]["ours"] == pytest.approx(values[name] * scale, rel=6e-3), what
    assert rows[0]["ratio"] == pytest.approx(values["epoch.of_pyg"], rel=6e-3)


def test_every_benchmark_says_what_it_is() -> None:
    content = json.loads((ROOT / "docs" / "benchmarks.json").read_text())
    names = {"what", "ours", "peer", "ratio", "unit", "kind", "machine", "date", "command"}
    for row in (row for section in content["sections"] for row in section["rows"]):
        assert set(row) == names
        assert row["kind"] in ("measured", "emulated", "simulated")
        assert row["machine"] in content["machines"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", row["date"])


def test_the_picture_and_the_table_of_caches_show_what_a_sweep_found() -> None:
    figures = json.loads((ROOT / "docs" / "caches.json").read_text())
    assert (ROOT / "docs" / "caches.svg").read_text() == draw_caches.draw(figures)
    page = (ROOT / "docs" / "caches.md").read_text()
    assert f"\n{draw_caches.table(figures)}" in page
    assert f"\n{figures['command']}\n" in page


def test_every_field_of_a_run_is_described() -> None:
    described = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "run-directory.md").read_text()))
    threads = Threads(sample=1, load=1, propagate=1)
    share = DeviceShare(device=Cpu(), num_seeds=1, threads=threads, prefetch="none")
    run = TrainResult(
        dataset="",
        model="",
        seed=0,
        history=(),
        layout=RunLayout(plan=DevicePlan(shares=(share,))),
        measures=("accuracy",),
        ceiling=None,
    )
    summary = summarize(run, status="completed")
    records = (EpochRecord, DeviceEpoch, Access)
    named = {field.name for record in records for field in fields(record)}
    assert {*summary, *summary["devices"][0], *named, *STAGES} <= described
