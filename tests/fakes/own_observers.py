"""Observers from outside the package."""

from pathlib import Path
from typing import Any

from gnnscale import Observer


class Watch(Observer):
    """Keeps what it is made with."""

    def __init__(self, directory: Path, options: dict[str, Any]) -> None:
        self.directory, self.options = directory, options


class Half:
    """Has some of the methods."""

    def __init__(self, directory: Path, options: dict[str, Any]) -> None: ...

    def started(self, run: Any) -> None: ...


class Broken(Observer):
    """Cannot be made."""

    def __init__(self, directory: Path, options: dict[str, Any]) -> None:
        1 / 0  # noqa: B018
