import re

import pytest

from gnnscale.backend import DeviceMemoryError
from gnnscale.backend.base import DeviceMemory
from gnnscale.planner import Emulated


@pytest.fixture
def memory() -> DeviceMemory:
    rates = {"macs_per_s": 1, "memory_bandwidth": 1}
    return DeviceMemory(Emulated(name="card", memory_bytes=10_000_000, **rates))


def test_bytes_are_taken_and_given_back(memory: DeviceMemory) -> None:
    memory.reserve(6_000_000, "the model")
    wanted = "card: out of device memory: a batch needs 5.0 MB beside 6.0 MB in use, and memory_b"
    with pytest.raises(DeviceMemoryError, match=f"^{re.escape(wanted)}"):
        memory.reserve(5_000_000, "a batch")
    # What did not fit took nothing.
    memory.reserve(4_000_000, "a smaller one")
    memory.free(4_000_000)
    memory.reserve(4_000_000, "the next")


def test_what_stays_leaves_room_for_what_goes(memory: DeviceMemory) -> None:
    memory.keep(4_000_000, "the model")
    assert memory.room == 6_000_000
    memory.reserve(5_000_000, "a batch")
    assert memory.room == 6_000_000
    with pytest.raises(DeviceMemoryError, match=r"the cache needs 2\.0 MB beside 9\.0 MB in use"):
        memory.keep(2_000_000, "the cache")
    assert memory.room == 6_000_000
