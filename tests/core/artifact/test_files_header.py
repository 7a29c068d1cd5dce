import pytest
from one_line import one_line

from gnnscale.core.artifact.files import check_limits, check_lines, header_text, parse_json
from gnnscale.core.errors import GraphError


def test_json_is_read_and_written() -> None:
    for data, message in (
        *[(text, "cannot be read as JSON") for text in (b"", b'{"a": ', b"[" * 100_000, b"{} {}")],
        (b'{"a": ' + b"9" * 100_000 + b"}", "cannot be read as JSON"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b'{"a": 1, "b": 2, "a": 3}', "key 'a' stands twice in one object"),
        (b'{"a": "\xff"}', "cannot be read as JSON ('utf-8' codec"),
        (b"\xef\xbb\xbf{}", "cannot be read as JSON"),
        (b"[1, 2]", "expected a JSON object, got a list"),
    ):
        with one_line(message, begins="role.json: ", error=GraphError, shorter_than=700):
            parse_json(data, source="role.json")
    entries = {"a": [[1, 2.5], [3, 4]], "b": {"c": None}}
    text = header_text(entries)
    assert text == '{\n "a": [[1, 2.5], [3, 4]],\n "b": {"c": null}\n}\n'
    assert parse_json(text.encode(), source="x") == entries


def test_texts_and_figures_that_are_refused():
    check_lines("f", ["good", "0123456789"], 10)
    for text in ("a\nb", "\x1b[2J", "x" * 11):
        with one_line(begins="f: expected a line of up to 10 characters, got ", error=GraphError):
            check_lines("f", ["good", text], 10)
    check_limits("f", [("a", 0, 5), ("b", 5, 5), ("c", None, 5)])
    for value in (-1, 5.5, float("nan")):
        with pytest.raises(GraphError, match=f"^f: b: expected 0 to 5, got {value}$"):
            check_limits("f", [("a", 1, 5), ("b", value, 5)])
