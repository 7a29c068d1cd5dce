"""A checkpoint of which a bit has changed is refused, wherever the bit is."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from one_line import one_line

from gnnscale.core.errors import ConfigError
from gnnscale.inference.trained_model import load_trained
from gnnscale.run.checkpoint import BEST, INPUT_SCHEMA, LAST
from gnnscale.run.checkpoint.file import (
    UNCHECKED_VERSION,
    is_whole,
    load_checkpoint,
    pack,
    save_checkpoint,
)
from gnnscale.run.checkpoint.input_schema import read_input_schema
from gnnscale.run.checkpoint.reader import SavedRun
from gnnscale.run.config import RunConfig

CONTENT = {"epoch": 3, "model": {"w": torch.arange(4.0)}, "empty": torch.empty(0)}


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_every_bit_of_a_file_is_covered(tmp_path: Path) -> None:
    file = tmp_path / "last.safetensors"
    save_checkpoint(file, CONTENT)
    content = file.read_bytes()
    assert load_checkpoint(file, content)["epoch"] == 3
    for bit in range(8 * len(content)):
        with pytest.raises(ConfigError):
            load_checkpoint(file, flipped(content, bit))
    draw = random.Random(0)  # and damage of many bits is found
    for _ in range(200):
        begin = draw.randrange(len(content))
        size = draw.randint(1, 64)
        damaged = bytearray(content)
        damaged[begin : begin + size] = draw.choice((bytes(size), draw.randbytes(size)))
        if bytes(damaged[: len(content)]) != content:
            with pytest.raises(ConfigError):
                load_checkpoint(file, bytes(damaged[: len(content)]))
    damaged = flipped(content, 8 * content.index(torch.arange(4.0).numpy().tobytes()[-2:]))
    with one_line("bytes are not those of its checksum", begins=f"{file}: not a readable checkpo"):
        load_checkpoint(file, damaged)


def test_files_of_earlier_releases_open(tmp_path: Path, caplog: Any) -> None:
    caplog.set_level("INFO")
    old = pack({"format_version": UNCHECKED_VERSION, **CONTENT})
    assert not is_whole(old)
    assert load_checkpoint(tmp_path / "old.safetensors", old)["epoch"] == 3
    assert "old.safetensors: written by an earlier release, without a checksum" in caplog.text
    # A file of this release has a checksum, or is damaged.
    with one_line("bytes are not those of its checksum"):
        load_checkpoint(
            tmp_path / "new", pack({"format_version": UNCHECKED_VERSION + 1, **CONTENT})
        )


@pytest.fixture(scope="module")
def saved() -> dict[Path, bytes]:
    return {}


@pytest.fixture
def trained(
    run: Any, settings: Callable[..., RunConfig], tmp_path: Path, saved: dict[Path, bytes]
) -> Callable[[Path, bytes], None]:
    """Return what reads one of a run's files, changed, as commands do."""
    if not saved:
        run(tmp_path / "run", "epochs=2")
        saved.update({file: (tmp_path / "run" / file).read_bytes() for file in FILES})
    config, directory = settings("epochs=2"), tmp_path / "read"
    (directory / "checkpoints").mkdir(parents=True)
    for file, content in saved.items():
        (directory / file).write_bytes(content)

    def read(file: Path, content: bytes) -> None:
        if file == LAST:
            SavedRun.load(directory / file, content)
            return
        (directory / file).write_bytes(content)
        try:
            load_trained(directory, config)
        finally:
            (directory / file).write_bytes(saved[file])

    return read


FILES = (LAST, BEST, INPUT_SCHEMA)


@pytest.mark.long
@pytest.mark.parametrize(("file", "flips"), [(LAST, 200), (BEST, 100), (INPUT_SCHEMA, 50)], ids=str)
def test_random_flips_in_the_files_of_a_run(trained, saved, file, flips) -> None:
    content, draw = saved[file], random.Random(str(file))
    trained(file, content)
    for bit in draw.sample(range(8 * len(content)), flips):
        with one_line(str(file)):
            trained(file, flipped(content, bit))


def test_every_bit_of_a_signature_is_covered(trained, saved, tmp_path) -> None:
    file, content = tmp_path / INPUT_SCHEMA, saved[INPUT_SCHEMA]
    file.parent.mkdir()
    for bit in range(8 * len(content)):
        file.write_bytes(flipped(content, bit))
        with pytest.raises(ConfigError):
            read_input_schema(tmp_path)


def test_a_signature_of_earlier_releases_opens(trained, saved, tmp_path) -> None:
    file = tmp_path / INPUT_SCHEMA
    file.parent.mkdir()
    file.write_bytes(saved[INPUT_SCHEMA])
    found = read_input_schema(tmp_path)
    assert found is not None
    lines = saved[INPUT_SCHEMA].splitlines(keepends=True)
    old = b"".join(lines[:-2])[:-2] + b"\n}\n"
    assert b"crc32" not in old
    file.write_bytes(old)
    assert read_input_schema(tmp_path) == found
