import io
import math
import pickle
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from epochs import epoch

from gnnscale.run import history as module
from gnnscale.run.history import History
from gnnscale.run.records import EpochRecord

#: More than are kept in memory.
MANY = 200


def records(number: int = MANY) -> list[EpochRecord]:
    return [epoch(each, each / 7) for each in range(1, number + 1)]


def made(number: int = MANY) -> History:
    found = History()
    for each in records(number):
        found = found.appended(each)
    return found


def test_it_is_a_sequence_of_records_that_never_changes() -> None:
    found, expected = made(), records()
    assert len(found) == MANY
    assert list(found) == expected
    assert [found[place] for place in (0, 70, -1)] == [expected[place] for place in (0, 70, -1)]
    assert found[5:] == tuple(expected[5:])
    assert found[-3::2] == tuple(expected[-3::2])
    assert found == expected
    assert found == History(expected)
    assert found != expected[1:]
    assert not History()
    with pytest.raises(IndexError):
        found[MANY]
    # Those who have one keep it, and what is appended to an older one is the other's only.
    first = made(3)
    second = first.appended(epoch(4, 0.5))
    other = first.appended(epoch(4, 0.25))
    assert [len(each) for each in (first, second, other)] == [3, 4, 4]
    assert [each[3].valid_metric for each in (second, other)] == [0.5, 0.25]
    assert second.first(3) == first
    assert list(second.first(3).appended(epoch(4, 0.75)))[:3] == list(first)
    record = epoch(1, 1 / 3)
    (device,) = record.devices or (None,)
    if device is not None:
        record = replace(record, devices=(replace(device, counters={"late_steps": 3, "s": 0.1}),))
    record = replace(record, train_loss=math.inf, lr=np.float64(0.1))
    (found,) = History([record])
    assert found == record
    assert repr(found.devices) == repr(record.devices)


@pytest.mark.parametrize("number", [0, 1, MANY])
def test_another_process_gets_it_whole(number: int) -> None:
    assert pickle.loads(pickle.dumps(made(number))) == records(number)


def test_one_thread_reads_while_another_appends() -> None:
    histories = [History()]

    def look() -> None:
        while len(histories) < MANY:
            latest = histories[-1]
            assert [each.epoch for each in latest] == list(range(1, len(latest) + 1))

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(look)
        for each in records():
            histories.append(histories[-1].appended(each))
        reading.result()


def test_a_full_disk_names_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, content: Any) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.tempfile, "SpooledTemporaryFile", lambda max_size: Full())
    with pytest.raises(OSError, match="No space left on device") as caught:
        made()
    assert caught.value.filename == module.tempfile.gettempdir()


def test_memory_does_not_grow_with_the_epochs() -> None:
    found, sizes = made(), []
    record: Any = epoch(1, 0.5)
    for _ in range(2):
        tracemalloc.start()
        for _ in range(1280):
            found = found.appended(record)
        sizes.append(tracemalloc.get_traced_memory()[0] / 1280)
        tracemalloc.stop()
    assert max(sizes) < 40  # bytes; its end in the file takes 8
