"""Checks of texts that are copied unquoted into a Makefile, a shell, Tcl, C++ or v++ input.

Allowed characters have no special meaning in any of these languages.
"""

import re

from gnnscale.core.errors import ConfigError, brief

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}")
#: For example ``DDR[0]``, ``HBM[0:9]`` or ``MC_NOC0``.
_BANK = re.compile(r"[A-Za-z]\w{0,63}(?:\[\d{1,4}(?::\d{1,4})?\])?", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+()/ -]{0,127}")


def check_word(option: str, text: str) -> None:
    """Raise ConfigError unless ``text`` is one word of ``[A-Za-z0-9_.+-]``."""
    if not _WORD.fullmatch(text):
        raise ConfigError(
            f"{option}={brief(text)}: expected at most 128 ASCII letters, digits and _.+-"
        )


def check_bank(option: str, text: str) -> None:
    """Raise ConfigError unless ``text`` is a Vitis name of memory banks."""
    if not _BANK.fullmatch(text):
        raise ConfigError(f"{option}={brief(text)}: expected a bank's name in Vitis, as in DDR[0]")


def check_label(option: str, text: str) -> None:
    """Raise ConfigError unless ``text`` can stand in a comment."""
    if not _LABEL.fullmatch(text):
        raise ConfigError(
            f"{option}={brief(text)}: expected at most 128 ASCII letters, digits, spaces and "
            "_.:+()/-"
        )
