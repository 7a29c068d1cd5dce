"""Words: texts that stand as they are in another program's input, such as a Makefile or Tcl.

No character of a word means something to make, a shell, Tcl, a compiler or v++.
"""

import re

from gnnscale.core.errors import ConfigError, shown

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}")
#: Such as ``DDR[0]``, ``HBM[0:9]`` and ``MC_NOC0``.
_BANK = re.compile(r"[A-Za-z]\w{0,63}(?:\[\d{1,4}(?::\d{1,4})?\])?", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+()/ -]{0,127}")


def check_word(option: str, text: str) -> None:
    """Raise ConfigError, naming ``option``, unless ``text`` is one word."""
    if not _WORD.fullmatch(text):
        raise ConfigError(
            f"{option}={shown(text)}: must be a word of at most 128 ASCII letters, digits and _.+-"
        )


def check_bank(option: str, text: str) -> None:
    """Raise ConfigError, naming ``option``, unless ``text`` names banks as Vitis does."""
    if not _BANK.fullmatch(text):
        raise ConfigError(f"{option}={shown(text)}: must be a bank as Vitis calls it, as in DDR[0]")


def check_label(option: str, text: str) -> None:
    """Raise ConfigError, naming ``option``, unless ``text`` is a name that a comment may hold."""
    if not _LABEL.fullmatch(text):
        raise ConfigError(
            f"{option}={shown(text)}: must be at most 128 ASCII letters, digits, spaces and "
            "_.:+()/-"
        )
