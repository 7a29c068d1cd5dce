"""Errors that the user can fix, of one line: ``OPTION=VALUE: expected X, got Y; HINT``."""

import difflib
import errno
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from gnnscale.core.memory import address_space_reason

#: Largest count that an option takes: native code stores counts in 32 bits.
MAX_COUNT = 2**31 - 1
#: Largest seed of a run.
MAX_SEED = 2**63 - 1
#: Message of the dynamic linker if it cannot map a library for lack of memory.
_NOT_MAPPED = "failed to map segment from shared object"
#: Maximum number of characters of a message, and of one value in a message.
_MAX_MESSAGE = 600
_MAX_VALUE = 60
#: Classes of gnnscale.training, by name: importing that package would import torch.
_WORKER_ERRORS = ("WorkerError", "PeerLostError")


class UserError(ValueError):
    """Error that the user can fix; its message is one printable line of ``limit`` characters."""

    def __init__(self, message: str, limit: int = _MAX_MESSAGE) -> None:
        super().__init__(one_line(message, limit))
        self._limit = limit

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self._limit)


def explain(error: BaseException) -> str | None:
    """Return a one-line message for an error that the user can fix; None for any other error."""
    if isinstance(error, UserError) or type(error).__name__ in _WORKER_ERRORS:
        return str(error)
    if is_out_of_memory(error):
        return f"out of memory{_memory_detail(error)}{address_space_reason()}"
    if isinstance(error, OSError) and error.strerror:
        # For example a full disk, or a file name that is too long.
        return f"{error.filename or 'output'}: {error.strerror}"
    return None


def is_interrupted(error: BaseException) -> bool:
    """Return whether a KeyboardInterrupt led to ``error``, such as one raised in a ``finally``."""
    earlier: BaseException | None = error
    while earlier is not None and not isinstance(earlier, KeyboardInterrupt):
        earlier = earlier.__context__
    return earlier is not None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error's type, errno or message says that memory, also for a thread, ran out."""
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
    # A thread without memory for its stack fails with the message of a thread limit.
    texts = ("can't allocate memory", "not enough memory", "bad_alloc", "can't start new thread")
    return isinstance(error, RuntimeError) and any(text_part in text for text_part in texts)


def _memory_detail(error: BaseException) -> str:
    """Return, as `` (LINE)``, the line of a message on what was not allocated; "" if unknown."""
    lines = str(error).splitlines()
    if isinstance(error, MemoryError) or not lines:
        return ""
    return f" ({one_line(next((line for line in lines if _NOT_MAPPED in line), lines[0]))})"


def one_line(text: object, limit: int = _MAX_MESSAGE) -> str:
    """Return ``text`` as one line for a message: shortened to ``limit`` characters, then escaped.

    Control characters, line ends and lone surrogates are escaped, so that the content of a file
    cannot move the terminal's cursor or fake a second line. A long text is cut in the middle, since
    a message begins with the file and ends with the expected values.
    """
    text = str(text).strip()
    if len(text) > limit:
        text = f"{text[: limit * 2 // 3]} ... {text[-(limit // 3) :]}"
    escaped = "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )
    return escaped if len(escaped) <= 4 * limit else f"{escaped[: 4 * limit]} ..."


def brief(value: object) -> str:
    """Return ``value`` as one line, shortened to 60 characters, for a message."""
    return one_line(value, _MAX_VALUE)


class ConfigError(UserError):
    """Error in a configuration: an unknown option, or an option with an invalid value."""


class GraphError(UserError):
    """Error in a graph or in a file that stores one."""


#: Common wrong names of options, and the option meant.
_ALIASES = {"gpu": "cuda", "nvidia": "cuda", "hybrid_gpu": "hybrid_cuda"}


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return ``", did you mean 'x'?"`` for the closest of ``names``, or "" if none is close."""
    if _ALIASES.get(name) in (names := list(names)):
        return f", did you mean {_ALIASES[name]!r}?"
    match = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f", did you mean {match[0]!r}?" if match else ""


def check_choice(option: str, value: str, allowed: Iterable[str]) -> None:
    """Raise ConfigError, naming ``option``, unless ``value`` is one of ``allowed``."""
    allowed = tuple(allowed)
    if value not in allowed:
        raise ConfigError(f"{option}={brief(value)}: allowed are {', '.join(allowed)}")


def check_range(option: str, value: float, minimum: float, maximum: float = MAX_COUNT) -> None:
    """Raise ConfigError, naming ``option``, unless ``minimum <= value <= maximum``."""
    if not minimum <= value <= maximum:
        raise ConfigError(
            f"{option}={brief(value)}: must be at least {minimum} and at most {maximum:,}"
        )


def listed_numbers(option: str, values: Any, example: str) -> list[int]:
    """Return a sequence or one-axis array of whole numbers as a list of int, else ConfigError."""
    is_list = isinstance(values, Sequence) and not isinstance(values, (str, bytes))
    if is_list or getattr(values, "ndim", None) == 1:
        try:
            numbers = [int(value) for value in values]
            if all(number == value for number, value in zip(numbers, values, strict=True)):
                return numbers
        except Exception:  # elements may be of any library
            pass
    hint = f"; [{values}] is a list of one" if isinstance(values, int) else ""
    raise ConfigError(
        f"{option}={brief(values)}: expected a list of whole numbers, such as {example}{hint}"
    )


def printable(text: str) -> bool:
    """Whether ``text`` has neither control characters nor lone surrogates."""
    return not any(unicodedata.category(character) in ("Cc", "Cs") for character in text)


#: Texts that are copied unquoted into a Makefile, a shell, Tcl, C++ or v++ input: no character has
#: a special meaning there.
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}")
#: For example ``DDR[0]``, ``HBM[0:9]`` or ``MC_NOC0``.
_BANK = re.compile(r"[A-Za-z]\w{0,63}(?:\[\d{1,4}(?::\d{1,4})?\])?", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+()/ -]{0,127}")


def check_word(option: str, text: str) -> None:
    """Raise ConfigError unless ``text`` is one word of up to 128 characters ``[A-Za-z0-9_.+-]``."""
    if not _WORD.fullmatch(text):
        raise ConfigError(
            f"{option}={brief(text)}: expected at most 128 ASCII letters, digits and _.+-"
        )


def check_bank(option: str, text: str) -> None:
    """Raise ConfigError unless ``text`` names FPGA memory banks in Vitis, as in ``HBM[0:9]``."""
    if not _BANK.fullmatch(text):
        raise ConfigError(f"{option}={brief(text)}: expected a bank's name in Vitis, as in DDR[0]")


def check_label(option: str, text: str) -> None:
    """Raise ConfigError unless ``text`` has up to 128 characters, all safe in a code comment."""
    if not _LABEL.fullmatch(text):
        raise ConfigError(
            f"{option}={brief(text)}: expected at most 128 ASCII letters, digits, spaces and "
            "_.:+()/-"
        )
