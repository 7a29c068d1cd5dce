"""What a function prints on a console."""

import io
from collections.abc import Callable
from typing import Any

from rich.console import Console

__all__ = ["on_console"]


def on_console(show: Callable[..., Any], *arguments: Any, width: int = 80, **options: Any) -> str:
    """Return what a function prints on the console that it is given."""
    stream = io.StringIO()
    show(*arguments, console=Console(file=stream, width=width), **options)
    return stream.getvalue()
