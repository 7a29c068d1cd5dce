import pickle

from hypothesis import given
from hypothesis import strategies as st

from gnnscale.core.errors import (
    ConfigError,
    GraphError,
    UserError,
    brief,
    is_interrupted,
    one_line,
    suggestion,
)


@given(st.text(st.characters(codec=None), max_size=2000))
def test_any_text_becomes_one_printable_line(text: str) -> None:
    line = one_line(text)
    assert line.isprintable()
    assert len(line.splitlines()) <= 1
    assert len(line) < 4 * 600 + 5
    line.encode()


def test_lines_are_printable_and_short() -> None:
    for text, line in (("a\nb", "a\\nb"), ("\x1b[2J", "\\x1b[2J"), ("a\u2028b", "a\\u2028b")):
        assert one_line(text) == line
    assert [one_line(text) for text in ("\udcff", "\x00")] == ["\\udcff", "\\x00"]
    harmless = "features.npy: größer als 3 − 日本"
    assert one_line(harmless) == harmless
    line = one_line("file: " + "x" * 20_000_000 + ", allowed is y")
    assert line.startswith("file: xxx")
    assert line.endswith(", allowed is y")
    assert len(line) < 700
    assert len(brief("9" * 1000)) < 80


def test_errors_hold_one_line_and_travel_between_processes() -> None:
    for kind in (UserError, ConfigError, GraphError):
        error = pickle.loads(pickle.dumps(kind("a\nb")))
        assert (type(error), str(error)) == (kind, "a\\nb")


def test_a_hint_is_a_near_name_or_what_others_call_it() -> None:
    assert suggestion("gpu", ["cpu", "cuda"]) == ", did you mean 'cuda'?"
    assert suggestion("gpu", ["cpu"]) == ", did you mean 'cpu'?"
    assert suggestion("sagee", ["sage", "gat"]) == ", did you mean 'sage'?"
    assert suggestion("colours", ["sage", "gat"]) == ""


def test_an_error_on_the_way_out_of_an_interruption() -> None:
    error = OSError("no space")
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt as interrupt:
        error.__context__ = interrupt
    assert is_interrupted(error)
    assert is_interrupted(KeyboardInterrupt())
    assert not is_interrupted(ConfigError("x"))
