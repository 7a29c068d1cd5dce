"""Command lines that nobody means: each ends in one line that says what is wrong, and no files."""

import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from gnnscale.cli.arguments import check_overrides, check_text
from gnnscale.core.errors import ConfigError

pytestmark = pytest.mark.integration

#: The arguments, and a part of what is said.
ODD = [
    ("train epoch=3", "epoch: unknown option, did you mean 'epochs'?"),
    ("train lr=0.1", "lr: unknown option, did you mean 'optimizer.lr'?"),
    ("train model=sgae", "model=sgae: no such model, did you mean 'sage'?"),
    ("train config=none.yaml", "config=none.yaml: no such file"),
    ("train --epochs=3", "--epochs=3: options have no dashes, as in epochs=3"),
    ("train --fast", "--fast: unknown flag"),
    ("train resume=nowhere", "resume=nowhere: expected a run directory"),
    ("train resume=nowhere -m", "resume=nowhere: cannot be part of a sweep"),
    ("train batch_size=abc", "batch_size: Value 'abc' of type 'str'"),
    ("evaluate run=nowhere", "run=nowhere: expected a run directory"),
    ("train output=/proc/x", "/proc/x: No such file or directory"),
    ("train output=", "output=: expected a folder"),
    ("train output=a output=b", "output=b: given twice"),
    ("train resume=x output=a", "output=a: cannot be given with resume"),
    ("train 'output=a/${nope}'", "output=a/${nope}: Interpolation key 'nope' not found"),
    ("evaluate run=x output=a", "output: unknown option"),
    ("train -m output=a/b epoch=3,4", "epoch: unknown option"),
    # What a command sets itself, and options that a user has no need of.
    ("train hydra.output_subdir=/proc/x", "hydra.output_subdir=/proc/x: not allowed; of Hydra"),
    ("train -m hydra.sweep.dir=/proc/x seed=0,1", "/proc/x: No such file or directory"),
    ("train dataset=null", "dataset=null: expected the name of a dataset, one of arrays, "),
    ("train ~dataset", "dataset: required"),
    ("prepare dataset=store", "dataset.store: required, the directory of the graph store"),
    ("prepare dataset=store dataset.store=/nowhere", "dataset.store=/nowhere: no such folder"),
    ("train ~model._target_", "model._target_: required"),
    ("train ''", "expected option=value"),
    ("train ~x", "'x' does not exist"),
    ("train 'seed=\"'", 'seed=": cannot be read as an option'),
    ("train 'seed=${seed}'", "seed: "),
    ("train 'seed=${oc.env:NOPE}'", "seed: KeyError raised while resolving"),
    ("train 'seed=${nope:1}'", "seed: Unsupported interpolation type nope"),
    ("train seed=0,1", "seed=0,1: add -m to run a sweep over these values, or write seed=[0,1]"),
    ("train optimizer.lr=1e999", "optimizer.lr=inf: expected a finite number"),
    ("train sampler.fanouts=[9223372036854775807,5]", "9223372036854775807 is not a fan-out"),
    ("train runtime=null", "runtime=null: "),
    ("train dataset=../train", "expected the name of a dataset"),
    ("train hydra/job_logging=../../x", "hydra/job_logging=../../x: not allowed; of Hydra's"),
    ("train hydra/launcher=joblib", "hydra/launcher=joblib: goes with -m, a sweep of several"),
    ("train -m hydra/launcher=nope", "hydra/launcher=nope: no such hydra/launcher"),
    ("train -m hydra/sweeper=../x", "hydra/sweeper=../x: expected the name of a hydra/sweeper"),
    ("train -m hydra/launcher=ray", "hydra/launcher=ray: not installed, pip install hydra-ray"),
    ("train -m hydra/sweeper=optuna", "hydra/sweeper=optuna: expected the direction of the va"),
    ("train -m hydra.launcher._target_=os.mkdir", "options of plugins are plain values"),
    ("train -m +hydra.sweeper.x={_target_:os.mkdir,path:x}", "options of plugins are plain"),
    ("train -m hydra.sweeper.params={seed:1}", "what is searched is typed as options"),
    ("train -m hydra.sweeper.custom_search_space=os.mkdir", "options of plugins are plain"),
    ("train -m +x={_target_:a.b} hydra.sweeper.sampler=${x}", "options of plugins are plain"),
    ("train -m hydra.sweeper.storage=redis://x", "a study lasts as long as its command"),
    ("train -m seed=range(0,1000000000)", "expected a sweep of at most 10,000 jobs, got 1,000,"),
    ("train -m seed=range(0,1,0.0)", "the range has no end"),
    ("train --cfg nonsense", "invalid choice: 'nonsense'"),
    ("train --package x", "--package=x: goes with --cfg alone"),
    ("train --run --multirun", "can be specified"),
    ("train --experimental-rerun=x.pickle", "use gnnscale train resume=DIR"),
    ("train --config-dir /tmp", "use gnnscale train config=FILE.yaml"),
    ("train ++hydra.searchpath=[/tmp]", "files of your own are config=FILE.yaml"),
    ("train hydra={searchpath:[/tmp]}", "files of your own are config=FILE.yaml"),
    ("train resume=/dev/zero", "Not a directory"),
    ("train algorithm=p3 resume=..", "algorithm=p3: resume=DIR continues with the algorithm of"),
    ("partition algorithm=p3", "algorithm: this command has no such group of options"),
    ("train config=/dev/zero.yaml", "no such file"),
    ("evaluate run=", "run=: expected a file or folder"),
    ("predict run=nowhere out=p.csv", "out=p.csv: expected a name that ends in .parquet or .npy"),
    ("predict run=nowhere", "out: required"),
    ("partition num_parts=2", "did you mean 'partitioner.num_parts'?"),
    ("partition partitioner.store=/", "expected a directory of its own, got the file system's"),
    ("partition partitioner.store=", "partitioner.store=: expected a path"),
    ("simulate accelerators=[1000000000]", "accelerators=[1000000000]: expected 1 to 256 numbers"),
    ("simulate platform=this_machine platform.file=/dev/zero", "/dev/zero: not a regular file"),
    ("simulate platform._target_=os.system", "expected a class of gnnscale"),
    ("-sc install=nope", "No completion plugin"),
]
#: Arguments that no shell would split like this.
RAW = [
    (["train", "seed=\udcff"], "is not UTF-8"),
    (["train", "seed=\x1b[31m"], "seed=\\x1b[31m: holds control characters"),
    (["train", "a\nb=1"], "a\\nb=1: holds control characters"),
    (["train", "x" * 1_000_000], "expected at most 4,096 characters, got 1,000,000"),
    (["train", "seed=" + "[" * 1000], "seed=[[["),
    (["train", *["seed=1"] * 3000], "options: expected at most 16,384 characters, got 18,000"),
    (["x" * 1_000_000], "unknown command"),
    (["\x1b[31m"], "\\x1b[31m: unknown command"),
]


@pytest.fixture(scope="module")
def answers(run_lines: Any) -> list[Any]:
    return run_lines([*(shlex.split(line) for line, _ in ODD), *(line for line, _ in RAW)])


@pytest.mark.parametrize("number", range(len(ODD) + len(RAW)))
def test_one_line_and_nothing_left(answers: list[Any], number: int) -> None:
    part = [*ODD, *RAW][number][1]
    assert part in answers[number].line


def test_folders_of_commands_that_did_not_begin(run_lines: Any, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    folders = [f"hydra.run.dir={tmp_path}/{name}" for name in ("new/run", "mine")]
    for answer in run_lines([["train", "batch_size=0", folder] for folder in folders]):
        assert "batch_size=0: must be at least 1" in answer.line
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert (tmp_path / "mine" / "file").exists()
    # A folder that another command has claimed, and has not yet written anything else into.
    (tmp_path / "run" / ".hydra").mkdir(parents=True)
    small = ("accelerators=[1]", "graph=reddit", "hybrid=false")
    (answer,) = run_lines([["simulate", *small, f"output={tmp_path}/run"]])
    assert answer.status == 1
    assert "holds .hydra, which would be overwritten" in answer.stderr
    assert os.listdir(tmp_path / "run") == [".hydra"]


def test_completion_says_nothing_of_half_typed_lines(run_lines: Any) -> None:
    typed = (
        "gnnscale train --config-dir /tmp seed=",
        "gnnscale train 'a seed=",
        "gnnscale train config=x.yaml hydra.searchpath=[/tmp] model.hi",
        "gnnscale train resume=x ${ [ model.hi",
    )
    answers = run_lines([[f"COMP_LINE={text}", "-sc", "query=bash"] for text in typed])
    for text, answer in zip(typed, answers, strict=True):
        assert (answer.status, answer.stderr, answer.left) == (0, "", [])
        if text.endswith("hi"):
            assert answer.stdout.split() == ["model.hidden="]


def test_text_and_names_are_checked_without_a_process() -> None:
    check_text(["dataset.raw=/données/ａ b"])
    check_overrides(["model=gcn", "seed=0,1,2", "dataset=csr,ogb", "~experiment", "+a.b=1"])
    for argument in ("model=a/b", "model=[gcn,5]", "experiment='../x'", "hydra/sweeper=a.b"):
        with pytest.raises(ConfigError, match="the name of a"):
            check_overrides([argument])


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("{user: a.csv, item: b.csv, user: c.csv}", "user"),
        ("{a: {b: [1,2], b: 3}}", "b"),
        ("{a: [b, b], b: {a: 1}}", None),
        ("[a, a]", None),
    ],
)
def test_a_key_that_a_mapping_has_twice(value: str, name: str | None) -> None:
    argument = f"dataset.vertices={value}"
    if name is None:
        check_overrides([argument])
        return
    with pytest.raises(ConfigError, match=f"{name} appears twice"):
        check_overrides([argument])
