import os
import pickle
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from one_line import one_line

from gnnscale.core.errors import ConfigError
from gnnscale.run.checkpoint.file import load_checkpoint, pack, read_checkpoint, save_checkpoint
from gnnscale.run.checkpoint.resume import check_same_run

CONTENT = {"epoch": 3, "model": {"w": torch.arange(4.0)}, "history": [{"loss": 0.5, "x": None}]}


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "checkpoints" / "last.safetensors"
    save_checkpoint(file, CONTENT)
    loaded = load_checkpoint(file)
    assert loaded == {**CONTENT, "format_version": 6, "model": loaded["model"]}
    assert torch.equal(loaded["model"]["w"], torch.arange(4.0))
    assert [path.name for path in file.parent.iterdir()] == ["last.safetensors"]


class Dangerous:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch ran",)


def test_a_file_that_would_run_code_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"format_version": 1, "model": Dangerous()}, tmp_path / "zip.safetensors")
    (tmp_path / "plain.safetensors").write_bytes(pickle.dumps(Dangerous()))
    for name in ("zip.safetensors", "plain.safetensors"):
        with pytest.raises(ConfigError, match="not a readable checkpoint") as error:
            load_checkpoint(tmp_path / name)
        assert "weights_only" not in str(error.value)
    assert not (tmp_path / "ran").exists()


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    file = tmp_path / "none.safetensors"
    with pytest.raises(ConfigError, match="no such checkpoint"):
        load_checkpoint(file)
    for content, shown in (
        ({"format_version": 99}, "99"),
        ({"format_version": "x" * 10**6}, "xxx"),
        ([1, 2], "expected checkpoint format 5 or 6, got None"),
    ):
        file.write_bytes(pack(content))
        with one_line("expected checkpoint format 5 or 6", shown, shorter_than=700):
            load_checkpoint(file)


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "last.safetensors"
    for make, remove in ((os.mkfifo, os.unlink), (os.mkdir, os.rmdir)):
        make(file)
        with pytest.raises(ConfigError, match="not a regular file"):
            read_checkpoint(file, limit=100)
        remove(file)
    with file.open("wb") as sparse:
        sparse.truncate(1 << 40)
    with pytest.raises(ConfigError, match="larger than 100 bytes"):
        read_checkpoint(file, limit=100)


def test_a_link_in_place_of_the_temporary_file_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    file = tmp_path / "checkpoints" / "last.safetensors"
    file.parent.mkdir()
    (file.parent / f".{file.name}.tmp").symlink_to(elsewhere)
    file.symlink_to(elsewhere)
    save_checkpoint(file, CONTENT)
    assert elsewhere.read_text() == "mine"
    assert load_checkpoint(file)["epoch"] == 3


def test_a_write_that_fails_leaves_the_file_before(tmp_path: Path) -> None:
    file = tmp_path / "last.safetensors"
    save_checkpoint(file, CONTENT)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            save_checkpoint(file, {"w": torch.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert load_checkpoint(file)["epoch"] == 3
    assert [path.name for path in tmp_path.iterdir()] == ["last.safetensors"]


@dataclass
class Saved:
    config: dict[str, Any]
    graph: dict[str, Any]


OPTIONS = {"seed": 0, "epochs": 3, "model": {"hidden": 8}}


def test_resuming_needs_the_same_options_and_graph(tmp_path: Path) -> None:
    def check(options: dict[str, Any] = OPTIONS, name: str = "a", **changed: object) -> None:
        saved = Saved(options, {"name": "a"})
        check_same_run(tmp_path / "last", saved, config=options | changed, graph={"name": name})

    check()
    check(epochs=9, num_threads=4, resume="x")
    with pytest.raises(ConfigError, match=r"resume: model\.hidden is 16, but .* with 8"):
        check(model={"hidden": 16})
    cosine = {"epochs": 3, "optimizer": {"schedule": "cosine"}}
    check(cosine)
    # Its rates follow from the number of epochs.
    with pytest.raises(ConfigError, match=r"resume: epochs is 9, but .* with 3"):
        check(cosine, epochs=9)
    # Earlier releases stored paths as they were typed.
    check({"owners": "o.npy"}, owners=os.path.abspath("o.npy"))
    with pytest.raises(ConfigError, match=r"resume: owners is /p\.npy, but .* with o\.npy"):
        check({"owners": "o.npy"}, owners="/p.npy")
    with pytest.raises(ConfigError, match=r"the graph's name is b, but .* with a"):
        check(name="b")
