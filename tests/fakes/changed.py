"""Changes of what was kept, as somebody else may make them."""

from collections.abc import Callable
from typing import Any

Change = Callable[[dict[str, Any]], object]


def put(*path: Any) -> Change:
    """Set an entry: all arguments but the last are its keys. What holds it is copied before."""
    *keys, last, value = path

    def change(content: dict[str, Any]) -> None:
        node: Any = content
        for key in keys:
            node[key] = node[key].copy()
            node = node[key]
        node[last] = value

    return change


def drop(name: str) -> Change:
    return lambda content: content.pop(name)
