"""Whether what a page opens is closed."""

from html.parser import HTMLParser
from typing import Any


class _Nesting(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None: ...

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def headings(page: str) -> list[str]:
    """Return the headings of a page whose elements are closed in their order."""
    found = _Nesting()
    found.feed(page)
    assert found.open == []
    return found.headings
