from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gnnscale.config import ConfigError
from gnnscale.runtime.checkpoint import check_same_run, load_checkpoint, save_checkpoint

CONTENT = {"epoch": 3, "model": {"w": torch.arange(4.0)}, "history": [{"loss": 0.5, "x": None}]}


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "checkpoints" / "last.pt"
    save_checkpoint(file, CONTENT)
    loaded = load_checkpoint(file)
    assert loaded["epoch"] == 3
    assert loaded["history"] == CONTENT["history"]
    assert torch.equal(loaded["model"]["w"], torch.arange(4.0))
    assert [path.name for path in file.parent.iterdir()] == ["last.pt"]


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.99])
def test_a_truncated_file_is_one_line(tmp_path: Path, share: float) -> None:
    file = tmp_path / "last.pt"
    save_checkpoint(file, CONTENT)
    os.truncate(file, int(file.stat().st_size * share))
    with pytest.raises(ConfigError, match=r"last\.pt: not a readable checkpoint") as error:
        load_checkpoint(file)
    assert "\n" not in str(error.value)


class Dangerous:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch ran",)


def test_a_file_that_would_run_code_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"format_version": 1, "model": Dangerous()}, tmp_path / "zip.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Dangerous()))
    for name in ("zip.pt", "plain.pt"):
        with pytest.raises(ConfigError, match="not a readable checkpoint"):
            load_checkpoint(tmp_path / name)
    assert not (tmp_path / "ran").exists()


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such checkpoint"):
        load_checkpoint(tmp_path / "none.pt")
    torch.save({"format_version": 99}, tmp_path / "future.pt")
    with pytest.raises(ConfigError, match="checkpoint format 99, this release reads 1"):
        load_checkpoint(tmp_path / "future.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(ConfigError, match="checkpoint format None"):
        load_checkpoint(tmp_path / "list.pt")


_WRITE_UNDER_LIMIT = """
import resource, signal, sys
from pathlib import Path
import torch
from gnnscale.runtime.checkpoint import save_checkpoint
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    save_checkpoint(Path(sys.argv[1]), {"w": torch.zeros(100_000)})
except OSError as error:
    print(error.strerror)
"""


def test_a_write_that_fails_leaves_the_file_before(tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    save_checkpoint(file, CONTENT)
    command = [sys.executable, "-c", _WRITE_UNDER_LIMIT, str(file)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "File too large"
    assert load_checkpoint(file)["epoch"] == 3
    assert [path.name for path in tmp_path.iterdir()] == ["last.pt"]


def saved() -> dict[str, dict[str, object]]:
    return {"config": {"seed": 0, "epochs": 3, "model": {"hidden": 8}}, "graph": {"name": "a"}}


def test_resuming_needs_the_same_options(tmp_path: Path) -> None:
    def check(**config: object) -> None:
        options = {"seed": 0, "epochs": 3, "model": {"hidden": 8}} | config
        check_same_run(tmp_path / "last.pt", saved(), config=options, graph={"name": "a"})

    check()
    check(epochs=9, num_threads=4, resume="x")
    with pytest.raises(ConfigError, match=r"resume: model\.hidden is 16, but .* with 8"):
        check(model={"hidden": 16})


def test_a_cosine_schedule_fixes_the_epochs(tmp_path: Path) -> None:
    options = {"epochs": 3, "optimizer": {"schedule": "cosine"}}
    content = {"config": options, "graph": {}}
    file = tmp_path / "last.pt"
    check_same_run(file, content, config=options, graph={})
    with pytest.raises(ConfigError, match=r"resume: epochs is 9, but .* with 3"):
        check_same_run(file, content, config={**options, "epochs": 9}, graph={})


def test_resuming_needs_the_same_graph(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the graph's name is b, but .* with a"):
        check_same_run(tmp_path / "last.pt", saved(), config=saved()["config"], graph={"name": "b"})
