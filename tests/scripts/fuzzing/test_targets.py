import ast
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import fuzzing
import pytest
from fuzzing.campaign import run_kept
from fuzzing.case import OK, Input, Target, case_rng, to_json
from fuzzing.cli import CAMPAIGNS
from fuzzing.targets import TARGETS, target_named
from fuzzing.targets.calls import MAKERS, valid_call
from fuzzing.targets.ops import Call, Ops
from fuzzing.targets.samples import SAMPLES, TYPED_SAMPLES

import gnnscale
from gnnscale import data as dataset
from gnnscale import ops
from gnnscale import sampling as sampler
from gnnscale.data import Dataset
from gnnscale.ops import _native
from gnnscale.run import artifacts as artefacts

#: Datasets that are made, not read.
GENERATED = {"PlantedPartition", "RMat", "Structure", "Dataset"}
#: What functions of ops take and return.
RECORDS = {
    *("ArrangedBlock", "Contracted", "EdgeTiles", "Refined", "Replacing", "Rows", "Sampled"),
    *("SampledHop", "TypedSample", "naming_graph", "Shared", "UndirectedLists"),
}
#: The target for each kind of artefact that a run is made of.
ARTEFACTS = {"GRAPH_STORE": "store", "PARTITION": "partition", "LINKS": "links"}
ARTEFACTS |= {"CACHE_PLAN": "cache_plan", "PREAGGREGATED": "preaggregated"}
#: Functions and classes by which files are read.
READ = {
    *("read_header", "read_regular", "read_yaml", "load_yaml", "read_file", "map_npy"),
    *("NpzReader", "Archive", "ParquetFile", "read_table", "read_csv", "CDLL", "opened_text"),
}
#: The modules and packages that read what a target damages.
READERS = {
    "bitstream": "backend.fpga.csim",
    "board": "planner.fpga_board",
    "cache_plan": "cache.store",
    "checkpoint": "run.checkpoint",
    "commands": "cli.options_file",
    "degrees": "planner.graphs",
    "links": "run.tasks.edge_split",
    "timed_links": "run.tasks.timed_split",
    "nvlink": "partition.nvlink",
    "partition": "partition.simple partition.store",
    "platform": "planner.platform",
    "preaggregated": "training.preaggregation",
    "readers": "data.formats data.readers data.structure_only",
    "run": "api.run data.tables.selection core.config.untrusted core.config.yaml_file "
    "report.steps report.sweep core.config.run_directory",
    "store": "core.artifact graph.store_meta data.tables.vertex_ids data.storage",
    "tables": "data.tables",
    "vendor": "fpga_design.design fpga_design.vendor",
}
DAMAGED_BY = {f"gnnscale.{each}": name for name, all_ in READERS.items() for each in all_.split()}
#: Modules that read what this program, its installation or the system has written.
OWN = {
    "gnnscale.data.storage.remote": "its own list of a file that it downloads",
    "gnnscale.core.files": "files for the readers of every kind",
    "gnnscale.core.hardware": "the system's files",
    "gnnscale.partition.edge_cut.subprocess": "an installed library, and its answer",
    "gnnscale.core.metrics": "the system's files",
    "gnnscale.report.doctor": "the system's files",
    "gnnscale.training.launcher.torchrun": "the system's C library",
    "gnnscale.backend.cuda.host_kernels": "the project's own sources",
    "gnnscale.backend.cuda.kernels": "the project's own sources, and what was compiled of them",
    "gnnscale.features.tiered.buffer": "the system's C library",
    "gnnscale.planner.cuda_spec": "rates measured of a card; damaged ones are measured again",
}


def reading_modules() -> Iterator[str]:
    root = Path(gnnscale.__file__).parent
    for file in sorted(root.rglob("*.py")):
        if any(map(reads, ast.walk(ast.parse(file.read_text())))):
            yield ".".join(("gnnscale", *file.relative_to(root).with_suffix("").parts))


def reads(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    modes = [each.value for each in node.args if isinstance(each, ast.Constant)]
    return name in READ or (name == "open" and "rb" in modes)


def damaged_by(module: str) -> str | None:
    parts = module.split(".")
    names = (".".join(parts[:size]) for size in range(len(parts), 0, -1))
    return next((DAMAGED_BY[name] for name in names if name in DAMAGED_BY), None)


@pytest.mark.long
def test_whatever_is_read_from_a_file_is_damaged_by_a_target() -> None:
    modules = [each for each in reading_modules() if each not in OWN]
    assert [each for each in modules if damaged_by(each) is None] == []
    # And the list holds nothing that is gone.
    assert {each for each in DAMAGED_BY if not any(m.startswith(each) for m in modules)} == set()
    # Stores of a part's rows, and those with types or times, are read as other graph stores are.
    others = {"ops", "rows", "typed_store", "typed_readers", "timed_store"}
    assert set(DAMAGED_BY.values()) == set(TARGETS) - others


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_every_target_is_run(campaign: str) -> None:
    assert set(CAMPAIGNS[campaign]) == set(TARGETS)


def test_every_artefact_of_a_run_has_a_target() -> None:
    kinds = {name: each for name, each in vars(artefacts).items() if name.isupper()}
    names = {name for name, kind in kinds.items() if isinstance(kind, str)}
    assert names == set(ARTEFACTS)
    assert set(ARTEFACTS.values()) <= set(TARGETS)


def test_every_function_of_ops_is_called() -> None:
    public = {name for name in dir(_native) if not name.startswith("_")}
    public = public - {"damaged", "TopologyError"} | {"gather_from_disk"}
    assert public - RECORDS <= set(MAKERS)
    methods = {name for name in vars(ops.NativeSampler) if not name.startswith("_")}
    assert {f"NativeSampler.{name}" for name in methods} <= set(MAKERS)
    samplers = {name for name in vars(sampler) if name.endswith("Sampler")}
    # A protocol, a part of others, and those that sample with another.
    samplers -= {"Sampler", "TruncatedSampler", "LinkSampler", "RowSampler", "TimedSampler"}
    assert {f"{name}.sample" for name in samplers} <= set(MAKERS)


def test_every_layout_has_a_sample() -> None:
    classes = {name for name, value in vars(dataset).items() if isinstance(value, type)}
    layouts = {name for name in classes if issubclass(getattr(dataset, name), Dataset)}
    assert set(SAMPLES) == layouts - GENERATED


@pytest.mark.parametrize("layout", SAMPLES)
def test_samples_are_valid(layout: str, fuzzer: ProcessPoolExecutor) -> None:
    for sample in SAMPLES[layout]:
        case = Input(kind=layout, options=sample.options, files=sample.files)
        assert fuzzer.submit(run_kept, to_json("readers", case)).result().verdict == OK


@pytest.mark.parametrize("layout", TYPED_SAMPLES)
def test_typed_samples_are_valid(layout: str, fuzzer: ProcessPoolExecutor) -> None:
    for sample in TYPED_SAMPLES[layout]:
        case = Input(kind=layout, options=sample.options, files=sample.files)
        assert fuzzer.submit(run_kept, to_json("typed_readers", case)).result().verdict == OK


@pytest.mark.long
@pytest.mark.parametrize("function", MAKERS)
def test_valid_calls_are_answered(function: str, tmp_path: Path) -> None:
    target = Ops(function)
    for number in range(10):
        call = Call(function, valid_call(function, case_rng("valid", number)), {})
        outcome = target.run(call, tmp_path)
        assert outcome.verdict == OK, f"{outcome.verdict}: {outcome.detail}\n{outcome.message}"


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in TARGETS if name not in ("ops", "commands")])
def test_cases_repeat(name: str) -> None:
    targets: list[Target] = [target_named(name) for _ in range(2)]
    for target in targets:
        target.prepare()
    first, second = ([target.make("key", number) for number in range(5)] for target in targets)
    assert first == second


def test_a_short_campaign_comes_to_its_end_by_the_command() -> None:
    """CI runs those of all targets; any change may break the one of ops."""
    command = [sys.executable, Path(fuzzing.__file__).parent, "ops", "--cases", "60", "--seed", "1"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = [line.split("|") for line in ended.stdout.splitlines() if line.startswith("| ")]
    counts = {row[1].strip(): int(row[2]) for row in rows[1:]}
    assert sum(counts.values()) == 60
    assert counts[OK]
