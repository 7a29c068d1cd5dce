import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.backend.fpga.csim import card
from gnnscale.backend.fpga.csim.card import ALIGNMENT, Bank, BufferFlags, BufferObject

TO = card.SyncDirection.XCL_BO_SYNC_BO_TO_DEVICE
FROM = card.SyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE


def buffer(num_bytes: int, flags: BufferFlags = BufferFlags.normal) -> BufferObject:
    return BufferObject(Bank(0, 1 << 20), num_bytes, flags)


def test_the_map_is_the_hosts_copy_and_device_memory_not_zero_at_first() -> None:
    found = buffer(8)
    assert found.read(8, 0).tobytes() == bytes(8)
    np.frombuffer(found.map(), np.uint32)[:] = [1, 2]
    assert found.read(4, 4).view(np.uint32).tolist() == [2]
    assert (found.map().nbytes, found.size()) == (8, 8)
    found.sync(FROM)
    assert np.isnan(found.read(8, 0).view(np.float32)).all()


@pytest.mark.long
@settings(max_examples=30)
@given(st.data())
def test_a_buffer_is_two_arrays(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 64))
    found = buffer(size)
    host, device = np.zeros(size, np.uint8), np.full(size, 0xFF, np.uint8)
    for _ in range(data.draw(st.integers(1, 8))):
        start = data.draw(st.integers(0, size))
        count = data.draw(st.integers(0, size - start))
        part = slice(start, start + count)
        match data.draw(st.sampled_from(["write", TO, FROM])):
            case "write":
                written = data.draw(st.binary(min_size=count, max_size=count))
                found.write(written, start)
                host[part] = np.frombuffer(written, np.uint8)
            case direction:
                found.sync(direction, count, start)
                into, source = (device, host) if direction == TO else (host, device)
                into[part] = source[part]
        assert found.read(size, 0).tobytes() == host.tobytes()


def test_a_bank_is_full_and_freed() -> None:
    bank = Bank(3, 3 * ALIGNMENT)
    first = BufferObject(bank, ALIGNMENT + 1, BufferFlags.normal)
    assert bank.in_use == 2 * ALIGNMENT
    with pytest.raises(RuntimeError, match=r"out of device memory: bank 3 has 12,288 bytes"):
        BufferObject(bank, ALIGNMENT + 1, BufferFlags.normal)
    second = BufferObject(bank, ALIGNMENT, BufferFlags.normal)
    assert first.address() % ALIGNMENT == second.address() % ALIGNMENT == 0
    del first, second
    gc.collect()
    assert bank.in_use == 0
