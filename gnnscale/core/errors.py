"""Messages for the user: one line, whatever a file or a library put into it."""

import difflib
import errno
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from gnnscale.core.memory import address_space_reason

#: The largest count that any option takes: what native code keeps in 32 bits.
MAX_COUNT = 2**31 - 1
#: The largest seed of a run.
MAX_SEED = 2**63 - 1
#: What the system's linker says if a library finds no memory.
_NOT_MAPPED = "failed to map segment from shared object"
#: Characters of a whole message, and of one value in it.
_MAX_MESSAGE = 600
_MAX_VALUE = 60
#: Of gnnscale.training, which imports torch and is not to be imported for this.
_WORKER_ERRORS = ("WorkerError", "PeerLostError")


class UserError(ValueError):
    """An error that the user can fix; the message is one line that a terminal may print."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def explain(error: BaseException) -> str | None:
    """Return one line for an error that the user can fix, None for one of the program's."""
    if isinstance(error, UserError) or type(error).__name__ in _WORKER_ERRORS:
        return str(error)
    if is_out_of_memory(error):
        return f"out of memory{_memory_detail(error)}{address_space_reason()}"
    if isinstance(error, OSError) and error.strerror:
        # What the system refuses: a full disk, a folder that is a file, a name that is too long.
        return f"{error.filename or 'output'}: {error.strerror}"
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, by the messages of NumPy, torch, the system and its linker."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    text = str(error)
    if isinstance(error, SystemError):
        # Python's message when an import runs out of memory.
        return "without exception set" in text
    if isinstance(error, ImportError):
        return _NOT_MAPPED in text
    # A thread cannot start if its stack finds no memory; a limit of threads reads the same.
    texts = ("can't allocate memory", "not enough memory", "bad_alloc", "can't start new thread")
    return isinstance(error, RuntimeError) and any(text_part in text for text_part in texts)


def _memory_detail(error: BaseException) -> str:
    """Return, in parentheses, the line of a message that says what found no memory."""
    lines = str(error).splitlines()
    if isinstance(error, MemoryError) or not lines:
        return ""
    return f" ({one_line(next((line for line in lines if _NOT_MAPPED in line), lines[0]))})"


def one_line(text: object, limit: int = _MAX_MESSAGE) -> str:
    """Return ``text`` as one line of at most ``limit`` characters.

    Control characters, line ends and lone surrogates are escaped, so that no file can move a
    terminal's cursor or fake a second line. The middle of a long text is cut: a message begins with
    the file and ends with what is allowed.
    """
    text = str(text).strip()
    if len(text) > limit:
        text = f"{text[: limit * 2 // 3]} ... {text[-(limit // 3) :]}"
    escaped = "".join(each if each.isprintable() else _escape(each) for each in text)
    return escaped if len(escaped) <= 4 * limit else f"{escaped[: 4 * limit]} ..."


def shown(value: object) -> str:
    """Return a value from a file, short and on one line, for a message."""
    return one_line(value, _MAX_VALUE)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


class ConfigError(UserError):
    """An option is unknown or has a value that is not allowed."""


class GraphError(UserError):
    """A graph, or a file that should hold one, is not usable."""


#: Names that people give to what is called differently here.
_MEANT = {"gpu": "cuda", "nvidia": "cuda", "hybrid_gpu": "hybrid_cuda"}


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``", did you mean 'x'?"`` for the known name closest to ``name``, or nothing."""
    if _MEANT.get(name) in (known := list(known)):
        return f", did you mean {_MEANT[name]!r}?"
    match = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f", did you mean {match[0]!r}?" if match else ""


def check_choice(option: str, value: str, allowed: Iterable[str]) -> None:
    """Raise a ConfigError that names ``option``, ``value`` and ``allowed`` unless it is allowed."""
    allowed = tuple(allowed)
    if value not in allowed:
        raise ConfigError(f"{option}={shown(value)}: allowed are {', '.join(allowed)}")


def check_range(option: str, value: float, minimum: float, maximum: float = MAX_COUNT) -> None:
    """Raise a ConfigError that names ``option`` unless ``minimum <= value <= maximum``."""
    if not minimum <= value <= maximum:
        raise ConfigError(
            f"{option}={shown(value)}: must be at least {minimum} and at most {maximum:,}"
        )


def listed_numbers(option: str, values: Any, example: str) -> list[int]:
    """Return whole numbers of a list, a tuple, or an array or tensor with one axis, as a list.

    Raises:
        ConfigError: ``option`` is something else; ``example`` is an allowed value.
    """
    is_list = isinstance(values, Sequence) and not isinstance(values, (str, bytes))
    if is_list or getattr(values, "ndim", None) == 1:
        try:
            numbers = [int(each) for each in values]
            if all(number == each for number, each in zip(numbers, values, strict=True)):
                return numbers
        except Exception:  # an element of any library is asked for its number
            pass
    hint = f"; [{values}] is a list of one" if isinstance(values, int) else ""
    raise ConfigError(
        f"{option}={shown(values)}: expected a list of whole numbers, such as {example}{hint}"
    )


def printable(text: str) -> bool:
    """Return whether ``text`` has neither control characters nor lone surrogates."""
    return not any(unicodedata.category(character) in ("Cc", "Cs") for character in text)
