import os
from contextlib import suppress
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from one_line import one_line

from gnnscale.core.config import run_directory
from gnnscale.core.config.run_directory import (
    TORCHRUN_FILE,
    check_output,
    check_run_directory,
    check_store_of_run,
    check_unused,
    claim,
    create_output_folder,
    create_run_directory,
    read_run,
    removed_on_error,
    resume_command,
)
from gnnscale.core.errors import ConfigError
from gnnscale.core.locks import LOCK_FILE


def run(directory: Path, text: str = "seed: 1\n") -> Path:
    for name in ("checkpoints", ".hydra"):
        (directory / name).mkdir(parents=True)
    (directory / "config.yaml").write_text(text)
    return directory


def test_what_a_run_says(tmp_path: Path) -> None:
    assert read_run(run(tmp_path / "run"), ("seed",), option="run") == {"seed": 1}
    for name in ("none", "run/config.yaml"):
        with pytest.raises(ConfigError, match=r"config\.yaml"):
            read_run(tmp_path / name, ("seed",), option="run")
    with pytest.raises(ConfigError, match=r"resume=.*none: expected a run directory"):
        read_run(tmp_path / "none", ("seed",), option="resume")
    check_store_of_run(Path("config.yaml"), None)
    for store in (str(tmp_path / "new"), "~nobody-of-this-name/x"):
        with pytest.raises(ConfigError, match=r"config\.yaml: dataset\.store=.*no such graph st"):
            check_store_of_run(Path("config.yaml"), store)
    (tmp_path / "meta.json").touch()
    check_store_of_run(Path("config.yaml"), str(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hydra: {callbacks: {x: {_target_: shutil.copy}}}", "config.yaml: hydra: "),
        ("defaults: [x]", "config.yaml: defaults: "),
        ("seed: ${oc.env:HOME}", "it holds values alone"),
        ("sed: 1", "sed: unknown option, did you mean 'seed'?"),
    ],
)
def test_settings_of_hydra_are_refused(text: str, message: str, tmp_path: Path) -> None:
    with one_line(message):
        read_run(run(tmp_path / "run", text), ("seed",), option="run")


def test_links_and_pipes_are_refused(tmp_path: Path) -> None:
    directory = run(tmp_path / "run")
    for name in ("train.log", ".metrics.jsonl.tmp", "checkpoints/last", ".hydra/x"):
        for make in (lambda file: file.symlink_to(tmp_path / "elsewhere"), os.mkfifo):
            make(directory / name)
            with pytest.raises(ConfigError, match="neither a file nor a folder"):
                check_run_directory(directory)
            (directory / name).unlink()
    # The run directory itself is what the user names.
    (tmp_path / "link").symlink_to(directory)
    check_run_directory(tmp_path / "link")
    (directory / "checkpoints").rmdir()
    (directory / "checkpoints").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="checkpoints: neither a file nor a folder"):
        check_run_directory(directory)


def test_a_folder_that_holds_a_run_or_a_sweep_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    check_unused(tmp_path)
    check_unused(tmp_path / "missing")
    for name in ("config.yaml", "summary.json", "checkpoints", ".hydra"):
        (tmp_path / name).mkdir()
        for option in ("output", "directory"):
            message = f"^{option}={tmp_path}: holds a run; resume={tmp_path} "
            with pytest.raises(ConfigError, match=message):
                check_unused(tmp_path, option=option)
        (tmp_path / name).rmdir()
    for name in ("multirun.yaml", "results.json", "results.svg", "report.html", "0", "12"):
        (tmp_path / name).mkdir()
        with pytest.raises(ConfigError, match="holds a sweep"):
            check_unused(tmp_path, jobs=True)
        check_unused(tmp_path)
        (tmp_path / name).rmdir()


def test_what_was_made_is_removed_again(tmp_path: Path) -> None:
    def interrupt(directory: Path, *made: str) -> list[str]:
        with suppress(KeyboardInterrupt), removed_on_error(directory) as mine:
            mine.update(("a", "b"))
            for name in made:
                (directory / name).touch()
            raise KeyboardInterrupt
        return sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))

    assert interrupt(tmp_path / "x" / "y", "a", "b") == []
    # A run that has begun stays, and what was there.
    assert interrupt(tmp_path / "x", "a", "checkpoint") == ["x", "x/a", "x/checkpoint"]
    assert interrupt(tmp_path / "x", "b") == ["x", "x/a", "x/checkpoint"]


def test_the_command_is_for_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "it's mine"
    directory.mkdir()
    for in_use in (None, directory):
        monkeypatch.setattr("gnnscale.core.config.run_directory._in_use", in_use)
        assert resume_command() is None
    (directory / "config.yaml").touch()
    assert resume_command() == f"gnnscale train 'resume={tmp_path}/it'\"'\"'s mine'"


def test_directories_of_torchruns_runs(tmp_path, monkeypatch) -> None:
    directory = tmp_path / "new" / "run"
    claim(directory, "first")
    claim(directory, "other")  # nothing is in there yet
    claim(directory, "first")
    run(directory)
    claim(directory, "first")
    with pytest.raises(ConfigError, match=r"torchrun --rdzv-id=first, got --rdz"):
        claim(directory, "other")
    (directory / TORCHRUN_FILE).unlink()
    with pytest.raises(ConfigError, match=r"^output=.*/run: holds a run"):
        claim(directory, "first")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file/run/rdzv-id: Not a directory$"):
        claim(tmp_path / "file" / "run", "name")

    def check_late(directory: Path) -> None:
        (directory / TORCHRUN_FILE).write_text("mine")
        run(directory)
        check_unused(directory)

    monkeypatch.setattr(run_directory, "check_unused", check_late)
    claim(tmp_path, "mine")


NAMES = ("Makefile", "include", "design.json")


def test_a_folder_that_holds_an_output_is_refused(tmp_path: Path) -> None:
    check_output(tmp_path / "missing", NAMES)
    (tmp_path / "mine").touch()
    check_output(tmp_path, NAMES)
    (tmp_path / "include").symlink_to(tmp_path / "nowhere")
    held = rf"^output={tmp_path}: holds include, which would be overwritten; name another folder"
    with pytest.raises(ConfigError, match=rf"{held}$"):
        check_output(tmp_path, NAMES)
    with pytest.raises(ConfigError, match=rf"{held}, or add force=true$"):
        check_output(tmp_path, NAMES, force=False)
    with pytest.raises(ConfigError, match="holds mine, which is not of this command"):
        check_output(tmp_path, NAMES, force=True)
    (tmp_path / "mine").unlink()
    with pytest.raises(ConfigError, match=r"/include: neither a file nor a folder"):
        check_output(tmp_path, NAMES, force=True)


def test_force_replaces_what_a_finished_command_wrote(tmp_path: Path) -> None:
    with suppress(OSError), create_output_folder(tmp_path / "a" / "out", NAMES) as made:
        (made / "include").mkdir()
        (made / "include" / "file").touch()
        raise OSError("full")
    assert os.listdir(tmp_path) == []
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    directory = tmp_path / "out"
    for text, force in (("first", None), ("second", True)):
        with create_output_folder(directory, NAMES, force=force) as made:
            assert os.listdir(made) == [LOCK_FILE]
            (made / "include").mkdir()
            (made / "Makefile").write_text(text)
    assert (directory / "Makefile").read_text() == "second"
    (directory / "include" / "inner").symlink_to(elsewhere)
    with (
        pytest.raises(ConfigError, match=r"/include/inner: neither a file nor a folder"),
        create_output_folder(directory, NAMES, force=True),
    ):
        pass
    assert (directory / "Makefile").read_text() == "second"


@pytest.mark.parametrize("name", ["train.log", "report.html", "steps.jsonl", "tensorboard"])
def test_a_run_replaces_no_file_and_follows_no_link(tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / name).symlink_to(elsewhere)
    options = OmegaConf.create({"hydra": {"runtime": {}, "run": {}, "overrides": {"task": []}}})
    for fresh, message in ((True, f"holds {name}, which would be"), (False, f"{name}: neither")):
        with (
            pytest.raises(ConfigError, match=message),
            create_run_directory(directory, options, options.hydra, fresh=fresh),
        ):
            pass
    assert os.listdir(directory) == [name]
    assert elsewhere.read_text() == "mine"
