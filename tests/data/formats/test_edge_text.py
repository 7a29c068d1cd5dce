"""Edge lists in text: separators, comments and headers, as several programs write them."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line

from gnnscale.core import GraphError
from gnnscale.data.formats.edge_text import EdgeText

gaps = st.tuples(*2 * [st.text(" \t", min_size=1, max_size=3)])
comments = st.sampled_from(["# nodes 3", "% sym 4", "   # indented", "", "\t"])


@settings(max_examples=60)
@given(
    edges=st.lists(st.tuples(*2 * [st.integers(0, 2**62)]), min_size=1, max_size=30),
    data=st.data(),
)
def test_any_blanks_and_comments_are_read(
    tmp_path_factory: pytest.TempPathFactory, edges: list[tuple[int, int]], data: st.DataObject
) -> None:
    lines = []
    tails = data.draw(st.sampled_from([["", "1.5", "{'weight': 3}"], ["1 1200000000"]]))
    for source, target in edges:
        lines += data.draw(st.lists(comments, max_size=1))
        first, between, last = data.draw(st.sampled_from(["", " ", "\t"])), *data.draw(gaps)
        more = data.draw(st.sampled_from(tails))
        lines.append(f"{first}{source}{between}{target}{last}{more}")
    text = data.draw(st.sampled_from(["\n", "\r\n"])).join(lines)
    text = (
        data.draw(st.sampled_from(["", "\ufeff"])) + text + data.draw(st.sampled_from(["", "\n"]))
    )
    file = tmp_path_factory.mktemp("e") / data.draw(st.sampled_from(["e.txt", "e.txt.gz"]))
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())
    found = EdgeText.open(file)
    columns = [np.concatenate(column) for column in zip(*found.columns(), strict=True)]
    assert list(zip(*map(list, columns), strict=True)) == edges
    assert found.ids().tolist() == sorted({end for edge in edges for end in edge})


def test_a_line_of_names_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for text in ("# SNAP\nFromNodeId\tToNodeId\n3\t4\n", "source,target\n3,4\n"):
        (tmp_path / "e.txt").write_text(text)
        assert EdgeText.open(tmp_path / "e.txt").ids().tolist() == [3, 4]
    assert "line 2, 'FromNodeId\\tToNodeId', names columns" in caplog.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("anna bob\nbob carl\n", ("line 1 is 'anna bob'", "dataset=tables")),
        ("# c\n0.0e+00 1.0e+00\n", ("line 2 is", "fmt='%d'")),
        ("1 2\n3 -4\n", ("vertex id -4 is negative",)),
        ("1;2\n", ("line 1 is '1;2'", "between ids, got ';'")),
        ("0 1 2 5\n1 0 3\n2 0\n", ("2 to 4 whole numbers", "networkx.read_adjlist")),
        ("1 2\n3 four\n# c\n5 6\n", ("line 2 is '3 four'",)),
        ("1 2\n# c\n\n3\n", ("line 4 is '3'", "expected 2 columns, got 1")),
        ("# nothing\n\n", ("has no edges",)),
        ("1 2\r3 4\r", ("line 1 has a CR without LF",)),
        ("%%MatrixMarket matrix coordinate pattern general\n", ("dataset=matrix_market",)),
        ("\ufffe1 2\n", ("expected whole numbers as ids",)),
    ],
)
def test_one_line_says_what_is_refused(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    file = tmp_path / "e.txt"
    file.write_text(text)
    with one_line(*words, error=GraphError, begins=str(file)):
        EdgeText.open(file).ids()
