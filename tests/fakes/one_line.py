"""Errors as a user reads them: one line each."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gnnscale.core.errors import ConfigError


@contextmanager
def one_line(
    *words: str, error: type[Exception] = ConfigError, begins: str = "", shorter_than: int = 10_000
) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """The block raises an error, whose only line has all ``words``, and begins with ``begins``."""
    with pytest.raises(error) as caught:
        yield caught
    line = str(caught.value)
    for each in words:
        assert each in line
    assert line.startswith(begins)
    assert line.isprintable()
    assert len(line) < shorter_than
