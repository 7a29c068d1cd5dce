"""A run directory with a damaged or a lost file: what reads it refuses it in a line."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import TINY

from gnnscale.run.checkpoint import BEST, INPUT_SCHEMA, LAST

pytestmark = pytest.mark.integration

#: What reads each file, in a folder with the run.
READERS = {
    LAST: [("train", "resume=run", "epochs=3")],
    BEST: [
        ("evaluate", "run=run"),
        ("predict", "run=run", "out=rows.npy"),
        ("export", "run=run", "out=model.safetensors"),
    ],
    INPUT_SCHEMA: [("export", "run=run", "out=model.safetensors")],
}


@pytest.fixture(scope="module")
def trained(run_lines: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("trained")
    (answer,) = run_lines([("train", *TINY, "batch_size=64", "epochs=2", "output=run")], folder)
    answer.succeeded()
    return folder / "run"


def line_of(answer: Any) -> str:
    *progress, line = answer.refused().stderr.splitlines()
    assert set(progress) <= {"starting", "starting workers"}
    return str(line)


@pytest.mark.parametrize("file", READERS, ids=str)
def test_a_flipped_bit_ends_in_one_line(trained, run_lines, tmp_path, file) -> None:
    shutil.copytree(trained, tmp_path / "run")
    content, draw = (trained / file).read_bytes(), random.Random(str(file))
    for line in READERS[file]:
        changed, bit = bytearray(content), draw.randrange(8 * len(content))
        changed[bit // 8] ^= 1 << bit % 8
        (tmp_path / "run" / file).write_bytes(changed)
        (answer,) = run_lines([line], tmp_path)
        assert f"run/{file}: " in line_of(answer)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["run"]
