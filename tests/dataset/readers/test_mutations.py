"""Damaged files: every reader ends in a store or in one line, and leaves nothing behind."""

from __future__ import annotations

import gzip
import io
import random
import re
import zipfile

import pytest

from gnnscale.config import ConfigError
from gnnscale.graph import GraphError

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
    for _ in range(150):
        path = generator.choice(list(files))
        path.write_bytes(mutated(files[path], generator))
        refused += attempt(dataset) is not None
        path.write_bytes(files[path])
    assert 0 < refused <= 150
    assert attempt(dataset) is None
    assert leftovers(dataset.store_path()) == []
