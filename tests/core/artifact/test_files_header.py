import pytest

from gnnscale.core.artifact.files import check_limits, check_lines, header_text, parse_json
from gnnscale.core.errors import GraphError


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cannot be read as JSON"),
        (b'{"a": ', "cannot be read as JSON"),
        (b"[" * 100_000, "cannot be read as JSON"),
        (b'{"a": ' + b"9" * 100_000 + b"}", "cannot be read as JSON"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b'{"a": 1, "b": 2, "a": 3}', "key 'a' stands twice in one object"),
        (b'{"a": "\xff"}', "cannot be read as JSON ('utf-8' codec"),
        (b"\xef\xbb\xbf{}", "cannot be read as JSON"),
        (b"[1, 2]", "expected a JSON object, got a list"),
        (b"{} {}", "cannot be read as JSON"),
    ],
)
def test_bad_json(data, message):
    with pytest.raises(GraphError) as error:
        parse_json(data, source="role.json")
    assert str(error.value).startswith("role.json: ")
    assert message in str(error.value)
    assert len(str(error.value)) < 700


def test_a_line_for_each_entry():
    entries = {"a": [[1, 2.5], [3, 4]], "b": {"c": None}}
    text = header_text(entries)
    assert text == '{\n "a": [[1, 2.5], [3, 4]],\n "b": {"c": null}\n}\n'
    assert parse_json(text.encode(), source="x") == entries


@pytest.mark.parametrize("text", ["a\nb", "\x1b[2J", "x" * 11])
def test_texts_that_are_no_line(text):
    check_lines("f", ["good", "0123456789"], 10)
    with pytest.raises(
        GraphError, match=r"^f: expected a line of up to 10 characters, got "
    ) as error:
        check_lines("f", ["good", text], 10)
    assert str(error.value).isprintable()


@pytest.mark.parametrize("value", [-1, 5.5, float("nan")])
def test_figures_out_of_range(value):
    check_limits("f", [("a", 0, 5), ("b", 5, 5), ("c", None, 5)])
    with pytest.raises(GraphError, match=f"^f: b: expected 0 to 5, got {value}$"):
        check_limits("f", [("a", 1, 5), ("b", value, 5)])
