"""What a function prints, in whatever process it is called."""

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

from rich.console import Console

__all__ = ["on_console", "printed"]


def printed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, str]:
    """Call a function, and return its result and what it printed."""
    output = io.StringIO()
    with redirect_stdout(output):
        result = function(*arguments)
    return result, output.getvalue()


def on_console(show: Callable[..., Any], *arguments: Any, width: int = 80, **options: Any) -> str:
    """Return what a function prints on the console that it is given."""
    stream = io.StringIO()
    show(*arguments, console=Console(file=stream, width=width), **options)
    return stream.getvalue()
