from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale.core.errors import GraphError
from gnnscale.graph import Graph
from gnnscale.model import GIN
from gnnscale.runtime.preaggregation.make import preaggregate
from gnnscale.runtime.preaggregation.store import JSON_FILE, ROWS_FILE, open_rows


@pytest.fixture
def path(home: Path, graph: Graph) -> Path:
    """Rows that are there and whole."""
    return preaggregate(GIN(hidden=8), graph, num_threads=1)


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    entries = json.loads((path / JSON_FILE).read_text())
    change(entries)
    (path / JSON_FILE).write_text(json.dumps(entries))


def refusal(path: Path, graph: Graph) -> str:
    with pytest.raises(GraphError) as error:
        open_rows(path, graph)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_rows_are_mapped(path: Path, graph: Graph) -> None:
    opened = open_rows(path, graph)
    assert isinstance(opened.rows, np.memmap)
    assert not opened.rows.flags.writeable
    assert (opened.rows.shape, opened.rows.dtype) == ((600, 8), np.float32)
    assert open_rows(path, graph).content == opened.content


def test_other_rows_have_another_content(path: Path, graph: Graph) -> None:
    before = open_rows(path, graph).content
    changed(path, lambda entries: entries["rows"].update(crc32=1))
    assert open_rows(path, graph).content != before


def test_rows_of_another_graph(path: Path, graph: Graph) -> None:
    other = replace(graph, content="0" * 32)
    assert refusal(path, other) == (
        f"{path}: has rows of planted-partition (content {graph.content}), not of "
        f"planted-partition (content {'0' * 32}); remove {path}, and it is made again"
    )


def test_truncated_rows(path: Path, graph: Graph) -> None:
    whole = (path / ROWS_FILE).read_bytes()
    (path / ROWS_FILE).write_bytes(whole[:-4])
    assert refusal(path, graph) == (
        f"{path / ROWS_FILE}: {len(whole) - 4} bytes, {JSON_FILE} says {len(whole)} (truncated?); "
        f"remove {path}, and it is made again"
    )
    changed(path, lambda entries: entries["rows"].update(bytes=len(whole) - 4))
    assert "its header says" in refusal(path, graph)
    (path / ROWS_FILE).unlink()
    assert refusal(path, graph) == f"{path / ROWS_FILE}: missing"


def test_rows_of_another_form(path: Path, graph: Graph) -> None:
    for wrong in (np.zeros((600, 8), np.int32), np.zeros((599, 8), "f4"), np.zeros((600, 9), "f4")):
        np.save(path / ROWS_FILE, wrong)
        size = (path / ROWS_FILE).stat().st_size
        changed(path, lambda entries, size=size: entries["rows"].update(bytes=size))
        told = refusal(path, graph)
        assert told.startswith(f"{path / ROWS_FILE}: {wrong.dtype}{list(wrong.shape)}, must be ")
    np.save(path / ROWS_FILE, np.array([{}] * 600), allow_pickle=True)
    size = (path / ROWS_FILE).stat().st_size
    changed(path, lambda entries: entries["rows"].update(bytes=size))
    assert "not a readable .npy file" in refusal(path, graph)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e.update(format_version=2), "format version 2, this release reads 1"),
        (lambda e: e.pop("identity"), "entry: identity is missing"),
        (lambda e: e["identity"].update(width="8"), "entry.identity.width: 8 is no int"),
        (lambda e: e["identity"].update(width=-1), "must be float32[600, -1]"),
        (lambda e: e["rows"].pop("crc32"), "crc32 is missing"),
        (lambda e: e["rows"].update(shape=[8, 600]), "not the rows that preaggregated.json tells"),
        (lambda e: e["rows"].update(dtype="float64"), "not the rows that preaggregated.json tells"),
        (lambda e: e["rows"].update(bytes=-1), "preaggregated.json says -1 (truncated?)"),
    ],
)
def test_damaged_entries(
    path: Path, graph: Graph, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    changed(path, change)
    assert message in refusal(path, graph)


def test_no_entries_at_all(path: Path, graph: Graph) -> None:
    (path / JSON_FILE).write_text("[]")
    assert refusal(path, graph).startswith(f"{path / JSON_FILE}: holds a list")
    (path / JSON_FILE).write_bytes(b" " * ((1 << 20) + 1))
    assert "more than 1 MiB" in refusal(path, graph)
    (path / JSON_FILE).unlink()
    assert refusal(path, graph) == f"{path / JSON_FILE}: missing"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite(path: Path, graph: Graph, value: float) -> None:
    rows = np.load(path / ROWS_FILE)
    rows[599, 7] = value
    np.save(path / ROWS_FILE, rows)
    with pytest.raises(GraphError) as error:
        preaggregate(GIN(hidden=8), graph, num_threads=1)
    assert str(error.value) == (
        f"{path / ROWS_FILE}: feature 7 of vertex 599 is {value}, features must be finite; "
        f"remove {path}, and it is made again"
    )


def test_rows_of_another_layer_or_width(path: Path, graph: Graph) -> None:
    whole = (path / ROWS_FILE).read_bytes()
    changed(
        path, lambda entries: entries["identity"].update(layer="gnnscale.model.layers.SAGELayer")
    )
    with pytest.raises(GraphError, match=r"has rows of 8 features of gnnscale\.model\.layers"):
        preaggregate(GIN(hidden=8), graph, num_threads=1)
    (path / ROWS_FILE).write_bytes(whole)
    np.save(path / ROWS_FILE, np.zeros((600, 9), np.float32))
    size = (path / ROWS_FILE).stat().st_size
    changed(path, lambda entries: entries["identity"].update(width=9))
    changed(path, lambda entries: entries["rows"].update(bytes=size, shape=[600, 9]))
    with pytest.raises(GraphError, match=r"has rows of 9 features of .*, not of 8 features of"):
        preaggregate(GIN(hidden=8), graph, num_threads=1)


@pytest.mark.parametrize("entry", ["name", "num_vertices", "num_edges", "num_train", "content"])
def test_rows_of_what_the_entries_say_is_another_graph(
    path: Path, graph: Graph, entry: str
) -> None:
    value = "other" if entry in ("name", "content") else 2**30
    changed(path, lambda entries: entries["identity"]["graph"].update({entry: value}))
    assert "has rows of" in refusal(path, graph)


@pytest.mark.parametrize("name", [JSON_FILE, ROWS_FILE])
def test_a_pipe_is_not_waited_for(path: Path, graph: Graph, name: str) -> None:
    (path / name).unlink()
    os.mkfifo(path / name)
    assert "not a regular file" in refusal(path, graph)
