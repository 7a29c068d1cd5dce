"""docs/extending.md: parts of the user's, typed on the command line, in sweeps and after them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import own_parts
import pytest
from tiny_runs import STORE

pytestmark = pytest.mark.integration

TINY = (
    *(*STORE, "dataset.train_fraction=0.6", "model.hidden=8", "num_threads=1", "epochs=1"),
    *("batch_size=1e2", "runtime.drm=false"),
)
Run = Callable[..., Any]


@pytest.fixture
def run(gnnscale: Run, tmp_path: Path) -> Run:
    """Run a command line in a directory with ``mine.py``, the parts of ``tests/fakes``."""
    shutil.copy(own_parts.__file__, tmp_path / "mine.py")
    return gnnscale


def summary(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "summary.json").read_text())
    return found


def test_a_sweep_over_shipped_and_own_parts(run: Run, tmp_path: Path) -> None:
    run(
        *("train", "-m", *TINY, "sampler.fanouts=[5,3]", "device_plan=hybrid_emulated"),
        *("partitioner=hash,mine.py:Dealt", "cache_planner=mine.py:ByNeighbors"),
        *("cache_planner.budget_bytes=2e3", "metrics=[mine.py:worst_recall,accuracy]"),
        "output=sweep",
    ).succeeded()
    jobs = json.loads((tmp_path / "sweep" / "results.json").read_text())["jobs"]
    names = ("hash", "mine.py:Dealt")
    assert [each["options"] for each in jobs] == [{"partitioner": name} for name in names]
    for job, algorithm in enumerate(("hash", "dealt")):
        found = summary(tmp_path / "sweep" / str(job))
        assert found["metric"] == "worst_recall"
        assert found["partition"]["algorithm"] == algorithm
        assert found["cache"]["planner"] == "neighbors"


def test_own_parts_after_the_run(run: Run, tmp_path: Path) -> None:
    """What a run directory names is not imported; what is typed again is."""
    sampler = ("sampler=mine.py:FewAtFirst", "sampler.few=[2,2]", "sampler.many=[5,3]")
    parts = ("partitioner=mine.py:Dealt", "partitioner.at_once=3")
    run(
        *("train", *TINY, *sampler, *parts, "features=mine.py:HalvedFeatures", "output=r"),
        *("metrics=[mine.py:worst_recall]", "device_plan=cpu_x2"),
    ).succeeded()
    # Nothing needs the code of the parts to evaluate, nor the file.
    code = (tmp_path / "mine.py").rename(tmp_path / "mine.txt")
    run("evaluate", "run=r", "metrics=[accuracy]").succeeded()
    run("predict", "run=r", "out=p.npy").succeeded()
    code.rename(tmp_path / "mine.py")

    refused = run("evaluate", "run=r")
    assert refused.stderr.endswith("if you trust it, add 'metrics=[mine.py:worst_recall]'\n")
    again = run("evaluate", "run=r", "metrics=[mine.py:worst_recall]")
    assert f"test worst_recall {summary(tmp_path / 'r')['test_metric']:.4f}" in again.stdout
    sampled = ("evaluate", "run=r", "metrics=[accuracy]", "inference=sampled")
    assert "set sampler._target_=mine.py:FewAtFirst" in run(*sampled).stderr
    assert run(*sampled, "sampler._target_=mine.py:FewAtFirst").status == 0

    refused = run("train", "resume=r", "epochs=2")
    assert "sampler._target_" in refused.stderr
    assert "names code, and nothing is imported because a file that was found" in refused.stderr
    run(
        *("train", "resume=r", "epochs=2", "metrics=[mine.py:worst_recall]"),
        *("partitioner=mine.py:Dealt", "sampler=mine.py:FewAtFirst"),
        "features._target_=mine.py:HalvedFeatures",
    ).succeeded()
    assert summary(tmp_path / "r")["epochs"] == 2


def test_a_file_of_options_names_own_parts(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "defaults:\n- override /partitioner: mine.py:Dealt\n"
        "features: {_target_: mine.py:HalvedFeatures}\npartitioner: {at_once: 2}\n"
    )
    done = run("train", "config=mine.yaml", "--cfg", "job").succeeded()
    dealt = "  _target_: mine.py:Dealt\n  num_parts: null\n  store: null\n  at_once: 2"
    assert dealt in done.stdout
    assert "  _target_: mine.py:HalvedFeatures\n" in done.stdout


WRONG = {
    "partitioner=mine.py:Nothing": "mine.py has no Nothing",
    "partitioner=none.py:Dealt": "partitioner=none.py:Dealt: no such file, ",
    "partitioner=mine.py:": "expected MODULE:NAME, as in mypkg.models:SAGE, or FILE.py:NAME",
    "partitioner=mine.py:FewAtFirst": "expected a subclass of gnnscale.partition.base.P",
    "cache_planner=mine.py:worst_recall": "expected a subclass of gnnscale.cache.base.CachePlanner",
    "sampler=mine.py:FewAtFirst": "sampler.few: required",
    "optimizer=mine.py:Dealt": "expected the name of a optimizer, one of adam, adamw, sgd",
    "partitioner=wrong.py:Lacks": "lacks algorithm, assign, forecast of PartitionerConfig",
    "partitioner=wrong.py:Plain": "expected a dataclass; write @dataclass(frozen=True, kw_only=Tr",
    "partitioner=wrong.py:Name": "Name.algorithm=../x: expected a word of at most 63 letters",
    "metrics=[mine.py:nothing]": "metrics=mine.py:nothing: ",
    "metrics=[wrong.py:accuracy]": "got accuracy, the name of another metric; rename your function",
    "metrics=[wrong.py:fails]": "metrics=wrong.py:fails fails with ZeroDivisionError: division by",
    "metrics=[wrong.py:text]": "metrics=wrong.py:text: expected a number, of which higher is",
    "batch_size=1.5": "batch_size: Value '1.5' of type 'float' could not be converted to Integer",
}
WRONG_PARTS = """
from typing import ClassVar
from gnnscale.partition import PartitionerConfig
from mine import Dealt
class Lacks(PartitionerConfig): ...
class Plain(Dealt):
    more: int = 1
class Name(Dealt):
    algorithm = "../x"
def accuracy(outputs, labels): return 1.0
def fails(outputs, labels): return 1 / 0
def text(outputs, labels): return "good"
"""


def test_what_cannot_be_a_part_is_one_line(run, run_lines, tmp_path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG_PARTS)
    lines = [("train", *STORE, "epochs=1", "output=w", each) for each in WRONG]
    for answer, line in zip(run_lines(lines, tmp_path), WRONG.values(), strict=True):
        assert line in answer.last_line
        shutil.rmtree(tmp_path / "w", ignore_errors=True)
