"""What a test says of this process does not outlive it."""

from collections.abc import Iterator

import pytest

from gnnscale.distributed.heartbeat import OWN


@pytest.fixture(autouse=True)
def blameless() -> Iterator[None]:
    yield
    OWN.verdict = None
