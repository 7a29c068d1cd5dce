"""Messages for the user: one line, whatever a file or a foreign library put into it."""

from __future__ import annotations

__all__ = ["GraphError", "UserError", "explain", "one_line", "shown"]

#: Characters of a whole message, and of one value in it.
_MAX_MESSAGE = 600
_MAX_VALUE = 60
#: Of gnnscale.runtime, which imports torch and is not to be imported for this.
_WORKER_ERRORS = ("WorkerError", "PeerLostError")


class UserError(ValueError):
    """What the user can mend. The message is one line that a terminal may print as it is."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class GraphError(UserError):
    """A graph, or what is kept of one on disk, is not usable."""


def explain(error: BaseException) -> str | None:
    """Return one line for an error that the user can mend, None for one of the program's."""
    if isinstance(error, UserError) or type(error).__name__ in _WORKER_ERRORS:
        return str(error)
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError) and error.strerror:
        # What the system refuses: a full disk, a folder that is a file, a name that is too long.
        return f"{error.filename or 'output'}: {error.strerror}"
    return None


def one_line(text: object, limit: int = _MAX_MESSAGE) -> str:
    """Return ``text`` as one line of at most ``limit`` characters.

    Control characters, line ends and lone surrogates are escaped, so that no file can move a
    terminal's cursor or fake a second line. What is too long loses its middle: a message begins
    with the file and ends with what is allowed.
    """
    text = str(text).strip()
    if len(text) > limit:
        text = f"{text[: limit * 2 // 3]} ... {text[-(limit // 3) :]}"
    escaped = "".join(each if each.isprintable() else _escape(each) for each in text)
    return escaped if len(escaped) <= 4 * limit else f"{escaped[: 4 * limit]} ..."


def shown(value: object) -> str:
    """Return a value from a file as a message may quote it: short, on one line."""
    return one_line(value, _MAX_VALUE)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
