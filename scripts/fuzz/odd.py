"""What may lie in the place of a file that is handed in: a pipe, a device, a link, a folder."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Collection
from pathlib import Path

__all__ = ["ASIDE", "ODD", "odd_places", "put_odd", "regular_files"]

#: Folder of what links lead to, beside the folder that is handed in.
ASIDE = "aside"
#: One case in so many has something odd in the place of one of its files.
_SELDOM = 16


def odd_places(names: Collection[str], rng: random.Random) -> dict[str, str]:
    """Return the file of a case that is something else, and one of ``ODD``; mostly none."""
    if not names or rng.randrange(_SELDOM):
        return {}
    return {rng.choice(sorted(names)): rng.choice(sorted(ODD))}


def put_odd(path: Path, kind: str, content: bytes, aside: Path) -> None:
    """Put one of ``ODD`` where a file belongs.

    Args:
        path: of the file.
        kind: what lies there.
        content: that the file would have.
        aside: folder for a file with that content, to which a link leads.
    """
    if kind == "link":
        aside.mkdir(parents=True, exist_ok=True)
        (aside / path.name).write_bytes(content)
        path.symlink_to(aside / path.name)
    else:
        ODD[kind](path)


def regular_files(folder: Path) -> dict[str, bytes | None]:
    """Return the content of all files below ``folder``; None of what is no regular file.

    Nothing is followed, nor waited for.
    """
    found: dict[str, bytes | None] = {}
    for place, folders, files in os.walk(folder):
        for name in (*files, *(each for each in folders if Path(place, each).is_symlink())):
            path = Path(place, name)
            regular = path.is_file() and not path.is_symlink()
            found[str(path.relative_to(folder))] = path.read_bytes() if regular else None
    return found


def _folder(path: Path) -> None:
    path.mkdir()
    (path / "file").write_bytes(b"x")


#: What lies there, by name.
ODD: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "empty device": lambda path: path.symlink_to("/dev/null"),
    "link": lambda path: None,  # put_odd makes it
    "link to nowhere": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "folder": _folder,
}
