from __future__ import annotations

import pytest

from gnnscale.core.errors import GraphError
from gnnscale.dataset.formats.json_file import parse_json, vertex_keys


def test_object():
    assert parse_json(b'{"0": [1, 2.5], "x": {"y": null}}', source="x") == {
        "0": [1, 2.5],
        "x": {"y": None},
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cannot be read as JSON"),
        (b'{"a": ', "cannot be read as JSON"),
        (b"[" * 100_000, "cannot be read as JSON"),
        (b'{"a":' * 100_000, "cannot be read as JSON"),
        (b'{"a": ' + b"9" * 100_000 + b"}", "cannot be read as JSON"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b'{"a": [-Infinity]}', "-Infinity is not a number"),
        (b'{"a": 1, "b": 2, "a": 3}', "key 'a' stands twice in one object"),
        (b'{"a": "\xff"}', "cannot be read as JSON ('utf-8' codec"),
        (b"\xef\xbb\xbf{}", "cannot be read as JSON"),
        (b"[1, 2]", "holds a list, not an object"),
        (b'"text"', "holds a str, not an object"),
        (b"{} {}", "cannot be read as JSON"),
    ],
)
def test_bad_json(data, message):
    with pytest.raises(GraphError) as error:
        parse_json(data, source="role.json")
    assert str(error.value).startswith("role.json: ")
    assert message in str(error.value)
    assert len(str(error.value)) < 700


def test_keys():
    assert vertex_keys(["3", "0", "12"], source="x").tolist() == [3, 0, 12]
    assert vertex_keys([], source="x").tolist() == []


@pytest.mark.parametrize(
    "key", ["-1", "x", "", "1.0", " 1", "1_0", "٣", "1" * 30, "9" * 19, "\x1b[2J", "\ud800"]
)
def test_keys_that_are_no_ids(key):
    with pytest.raises(GraphError, match=r"x: key '.*' is not a vertex id") as error:
        vertex_keys(["0", key], source="x")
    assert str(error.value).isprintable()


def test_two_spellings_are_not_two_vertices():
    with pytest.raises(GraphError, match=r"x: vertex 7 is named twice"):
        vertex_keys(["7", "07"], source="x")
