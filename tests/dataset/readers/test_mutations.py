"""Damaged files: every reader ends in a store or in one line, and leaves nothing behind."""

from __future__ import annotations

import gzip
import io
import os
import random
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from fuzz.targets.samples import SAMPLES

from gnnscale.core.errors import ConfigError, GraphError

ROOT = Path(__file__).parents[3]
_LAYOUTS = ("csr", "gnn_benchmark", "graphsaint", "heterophilous", "mag240m", "musae")
_LAYOUTS += ("musae_zip", "ogb_binary", "ogb_text", "planetoid", "snap", "tables_csv")
_LAYOUTS += ("tables_parquet",)
#: Numbers that tend to break what believes them.
_NUMBERS = ("-1", "0", "255", "65537", "2147483648", "9223372036854775808", "1" + "0" * 30)
_NUMBERS += ("nan", "1e300", "0.5", "true", "[]", "[[0]]", '"x"', "{}", "None", "")


def mutated(data, generator):
    """Return ``data`` with a few bytes or numbers changed, inside a zip or gzip half the time."""
    if data[:2] == b"PK" and generator.random() < 0.5:
        return _repacked(data, generator)
    if data[:2] == b"\x1f\x8b" and generator.random() < 0.7:
        return gzip.compress(_damaged(gzip.decompress(data), generator), mtime=0)
    return _damaged(data, generator)


def _repacked(data, generator):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    chosen = generator.choice(list(members))
    members[chosen] = _damaged(members[chosen], generator)
    if generator.random() < 0.1:
        del members[generator.choice(list(members))]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", generator.choice((0, 0, 8, 8, 12, 14))) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _damaged(data, generator):
    data = bytearray(data)
    for _ in range(generator.choice((1, 1, 2, 5))):
        place = generator.randrange(len(data) + 1)
        kind = generator.randrange(7)
        if kind == 0 and data:
            data[place % len(data)] ^= 1 << generator.randrange(8)
        elif kind == 1 and data:
            data[place % len(data)] = generator.randrange(256)
        elif kind == 2:
            del data[place:]
        elif kind == 3:
            data[place:place] = generator.randbytes(generator.randrange(1, 9))
        elif kind == 4:
            other = generator.randrange(len(data) + 1)
            data[place:place] = data[other : other + generator.randrange(1, 60)]
        elif kind == 5:
            del data[place : place + generator.randrange(1, 9)]
        elif numbers := list(re.finditer(rb"[0-9]+", bytes(data))):
            number = generator.choice(numbers)
            data[number.start() : number.end()] = generator.choice(_NUMBERS).encode()
    return bytes(data)


def attempt(dataset):
    """Prepare a store; return the error where there is one, which must be one printable line."""
    try:
        dataset.prepare(force=True)
    except (GraphError, ConfigError) as error:
        message = str(error)
        assert message.isprintable()
        assert len(message) < 3000
        return error
    return None


def test_every_layout_has_an_example(layouts):
    assert set(_LAYOUTS) == set(layouts)


@pytest.mark.parametrize("layout", _LAYOUTS)
def test_mutated_files(layout, prepared_in, leftovers):
    raw, dataset = prepared_in(layout)
    assert attempt(dataset) is None
    files = {path: path.read_bytes() for path in sorted(raw.rglob("*")) if path.is_file()}
    generator = random.Random(layout)
    refused = 0
    for _ in range(50):
        path = generator.choice(list(files))
        path.write_bytes(mutated(files[path], generator))
        refused += attempt(dataset) is not None
        path.write_bytes(files[path])
    assert 0 < refused <= 50
    assert attempt(dataset) is None
    assert leftovers(dataset.store_path()) == []


PIPES = """
import os, sys
from pathlib import Path
from fuzz.targets.samples import SAMPLES
from gnnscale import dataset
from gnnscale.options.config import ConfigError
from gnnscale.graph import GraphError

number = 0
for sample in (sample for layout in SAMPLES.values() for sample in layout):
    for pipe in sample.files:
        number += 1
        raw = Path(sys.argv[1]) / str(number)
        for name, content in sample.files.items():
            (raw / name).parent.mkdir(parents=True, exist_ok=True)
            (raw / name).write_bytes(content)
        options = dict(sample.options)
        one = raw / pipe if len(sample.files) == 1 else raw
        layout = getattr(dataset, sample.layout)
        for place in {raw, one}:
            made = layout(raw=str(place), store=f"{raw}-{place.name}-store", **options)
            try:
                made.prepare()
            except (GraphError, ConfigError):
                continue  # needs the file itself, or the folder
            if raw / pipe not in made.raw_files():
                print("refused by nobody, who reads no", pipe)
                continue
            (raw / pipe).rename(raw / "kept")
            os.mkfifo(raw / pipe)
            for force in (False, True):
                try:
                    made.prepare(force=force)
                    print("refused" if not force else "taken", pipe)  # stores outlive their files
                except (GraphError, ConfigError) as error:
                    print("refused", pipe, "by", error)
            (raw / pipe).unlink()
            (raw / "kept").rename(raw / pipe)
"""


def test_pipes_are_not_waited_for(tmp_path):
    """A pipe in place of any file of any layout: a line, and never a wait for who writes to it."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    command = [sys.executable, "-c", PIPES, str(tmp_path)]
    answer = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=True
    )
    lines = answer.stdout.splitlines()
    files = [name for layout in SAMPLES.values() for sample in layout for name in sample.files]
    assert len(lines) >= len(files)
    assert [line for line in lines if not line.startswith("refused ")] == []
