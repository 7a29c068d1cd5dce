"""What a function prints, in whatever process it is called."""

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

__all__ = ["printed"]


def printed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, str]:
    """Call a function, and return its result and what it printed."""
    output = io.StringIO()
    with redirect_stdout(output):
        result = function(*arguments)
    return result, output.getvalue()
