import gc
from functools import partial

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


def test_what_is_out_of_range_raises() -> None:
    found = buffer(4)
    uses = partial(found.sync, TO), found.read, lambda size, at: found.write(bytes(size), at)
    for size, offset in ((5, 0), (1, 4), (4, 1), (-1, 0), (1, -1)):
        for use in uses[: 2 + (size > 0)]:
            with pytest.raises(RuntimeError, match="of a buffer of 4"):
                use(size, offset)
    with pytest.raises(TypeError, match="a size with an offset"):
        found.sync(TO, 4)
    with pytest.raises(RuntimeError, match="not contiguous"):
        buffer(64).write(np.arange(8)[::2], 0)


def test_other_kinds_of_buffers() -> None:
    found = buffer(16, BufferFlags.device_only)
    for use in (found.map, lambda: found.sync(TO), lambda: found.read(1, 0)):
        with pytest.raises(RuntimeError, match="no host buffer"):
            use()
    bank, memory = card.on_device(found)
    assert (bank, memory.num_bytes) == (0, 16)
    for num_bytes, flags, message in (
        (4, BufferFlags.host_only, "no access to host memory"),
        (4, BufferFlags.p2p, "no p2p buffers"),
        (0, BufferFlags.normal, "a buffer of 0 bytes"),
    ):
        with pytest.raises(RuntimeError, match=message):
            buffer(num_bytes, flags)


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
