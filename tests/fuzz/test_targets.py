"""The targets: what is valid comes through, cases repeat, nothing public is left out."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import fuzz
import pytest
from fuzz.case import OK, Input, Target, case_rng, to_json
from fuzz.cli import main
from fuzz.single import run_kept
from fuzz.targets import target_named
from fuzz.targets.calls import MAKERS
from fuzz.targets.ops import Call, Ops
from fuzz.targets.samples import SAMPLES
from printed import printed

from gnnscale import dataset, ops, sampler
from gnnscale.dataset import Dataset

#: Datasets that are made, not read.
GENERATED = {"PlantedPartition", "RMat", "Structure", "Dataset"}
#: What functions of ops take and return.
RECORDS = {
    *("ArrangedBlock", "Contracted", "EdgeTiles", "Refined", "Replacing", "Rows", "Sampled"),
    "SampledHop",
    *("Shared", "UndirectedLists"),
}


def test_every_function_of_ops_is_called() -> None:
    public = {name for name in ops.__all__ if callable(getattr(ops, name))}
    assert public - RECORDS <= set(MAKERS)
    methods = {name for name in vars(ops.NativeSampler) if not name.startswith("_")}
    assert {f"NativeSampler.{name}" for name in methods} <= set(MAKERS)
    samplers = {name for name in sampler.__all__ if name.endswith("Sampler")} - {"Sampler"}
    assert {f"{name}.sample" for name in samplers} <= set(MAKERS)


def test_every_layout_has_a_sample() -> None:
    classes = {name for name in dataset.__all__ if isinstance(getattr(dataset, name), type)}
    layouts = {name for name in classes if issubclass(getattr(dataset, name), Dataset)}
    assert set(SAMPLES) == layouts - GENERATED


@pytest.mark.parametrize("layout", SAMPLES)
def test_samples_are_valid(layout: str, fuzzer: ProcessPoolExecutor) -> None:
    for sample in SAMPLES[layout]:
        case = Input(kind=layout, options=sample.options, files=sample.files)
        assert fuzzer.submit(run_kept, to_json("readers", case)).result().verdict == OK


@pytest.mark.parametrize("function", MAKERS)
def test_valid_calls_are_answered(function: str, tmp_path: Path) -> None:
    target = Ops(function)
    for number in range(100):
        from fuzz.targets.draw import Draw

        call = Call(function, MAKERS[function](Draw(case_rng("valid", number))), {})
        outcome = target.run(call, tmp_path)
        assert outcome.verdict == OK, f"{outcome.verdict}: {outcome.detail}\n{outcome.message}"


@pytest.mark.parametrize("name", ["readers", "store", "partition", "cache_plan"])
def test_cases_repeat(name: str) -> None:
    targets: list[Target] = [target_named(name) for _ in range(2)]
    for target in targets:
        target.prepare()
    for number in range(40):
        first, second = (target.make("key", number) for target in targets)
        assert first == second


@pytest.mark.parametrize("name", ["readers", "store", "partition", "cache_plan", "ops"])
def test_a_short_campaign_comes_to_its_end(name: str, fuzzer: ProcessPoolExecutor) -> None:
    arguments = [name, "--cases", "60", "--seed", "1"]
    if name == "ops":  # by the command
        command = [sys.executable, Path(fuzz.__file__).parent, *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        status, told = ended.returncode, ended.stdout
        assert status == 0, told + ended.stderr
    else:
        status, told = fuzzer.submit(printed, main, arguments).result()
        assert status == 0, told
    rows = [line.split("|") for line in told.splitlines() if line.startswith("| ")]
    counts = {row[1].strip(): int(row[2]) for row in rows[1:]}
    assert sum(counts.values()) == 60
    assert counts[OK]
