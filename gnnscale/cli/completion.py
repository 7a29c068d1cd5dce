"""Completion of ``gnnscale COMMAND OPTION`` for shells."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Collection, Sequence

from gnnscale.cli.arguments import check_flag, check_overrides, check_text
from gnnscale.core.errors import ConfigError
from gnnscale.options.compose import config_groups

__all__ = ["complete"]


def complete(
    arguments: Sequence[str], commands: Collection[str], run: Callable[[str, Sequence[str]], int]
) -> int:
    """Complete the command line in ``COMP_LINE``; Hydra completes options, given their command.

    A line that is half typed is no error: nothing is said about it.

    Args:
        arguments: as the shell calls it: ``-sc query=SHELL``, or ``-sc install=SHELL``.
        commands: names of the commands.
        run: runs a command with arguments.
    """
    if not arguments[1:2] or not arguments[1].startswith("query="):
        return run("train", arguments)
    line = os.environ.get("COMP_LINE", "")
    words = line.split()
    command = words[1] if len(words) > 1 else ""
    if command not in commands or (len(words) == 2 and not line.endswith(" ")):
        print(" ".join(name for name in commands if name.startswith(command)))
        return 0
    last = "" if line.endswith(" ") else words[-1]
    if command == "train" and last.startswith("config="):
        print(" ".join(f"config={name}" for name in config_groups()["experiment"]))
        return 0
    before = words[2:] if not last else words[2:-1]
    known = [word for word in before if _known_to_hydra(word, command)]
    os.environ["COMP_LINE"] = " ".join([words[0], *known, last])
    with contextlib.redirect_stderr(io.StringIO()):
        run(command, arguments)
    return 0


def _known_to_hydra(word: str, command: str) -> bool:
    """Whether a word in front of the one to complete is an option that names no file."""
    if word.startswith(("config=", "resume=")):
        return False
    try:
        check_text([word])
        check_flag(word, command)
        if not word.startswith("-"):
            check_overrides([word])
    except ConfigError:
        return False
    return True
