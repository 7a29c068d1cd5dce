"""Types of fixtures."""

from collections.abc import Callable
from typing import Any

__all__ = ["Make"]

#: A function that makes what a test needs.
Make = Callable[..., Any]
