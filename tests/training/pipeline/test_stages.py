import threading
from typing import Any

import numpy as np
import pytest
from small_plans import accelerator, plan_of, share

from gnnscale.backend import DeviceMemoryError
from gnnscale.core.stages import STAGES
from gnnscale.distributed.heartbeat import CURRENT_ACTIVITIES, activity
from gnnscale.training.pipeline.slices import BatchSlice
from gnnscale.training.pipeline.stages import Stages, measured

GIVE_UP_S = 60


def work() -> BatchSlice:
    return BatchSlice(step=0, plan=plan_of(share()), counts=(4,), seeds=np.arange(4))


def test_seconds_of_a_stage_are_added_up(clock) -> None:
    mine = work()
    for seconds in (2.0, 0.5):
        with measured(mine, "load"):
            clock.advance(seconds)
    assert (mine.stages.load, mine.stages.sample) == (2.5, 0.0)
    number = STAGES.index("load")
    assert mine.spans == [(number, 100.0, 102.0), (number, 102.0, 102.5)]
    # One that raises is timed, too.
    with pytest.raises(MemoryError), measured(mine, "transfer"):  # noqa: PT012
        clock.advance(1.0)
        raise MemoryError
    assert mine.stages.transfer == 1.0
    assert not CURRENT_ACTIVITIES


def test_each_thread_says_which_stage_it_is_in() -> None:
    began, seen = threading.Barrier(3), threading.Barrier(3)

    def load() -> None:
        with measured(work(), "load"):
            began.wait(GIVE_UP_S)
            seen.wait(GIVE_UP_S)

    @activity("checkpoint")
    def save() -> None:
        began.wait(GIVE_UP_S)
        seen.wait(GIVE_UP_S)

    threads = [threading.Thread(target=each) for each in (load, save)]
    for thread in threads:
        thread.start()
    began.wait(GIVE_UP_S)
    assert {CURRENT_ACTIVITIES[thread.ident] for thread in threads} == {"load", "checkpoint"}
    seen.wait(GIVE_UP_S)
    for thread in threads:
        thread.join()
    assert not CURRENT_ACTIVITIES


class Full:
    """A device that has no room the first time."""

    device = accelerator()

    def __init__(self, clock: Any) -> None:
        self.clock, self.asked = clock, 0

    def transfer(self, batch: Any, inputs: Any) -> str:
        self.asked += 1
        self.clock.advance(1.0)
        if self.asked == 1:
            raise DeviceMemoryError("full")
        return "there"


@pytest.fixture
def full(clock: Any) -> Any:
    return Full(clock)


def test_a_transfer_without_room_takes_no_time_of_the_stage(full) -> None:
    stages, mine = Stages(full), work()
    mine.batch = mine.inputs = object()  # type: ignore[assignment]
    with pytest.raises(DeviceMemoryError):
        stages.transfer(mine)
    assert (mine.stages.transfer, mine.spans, mine.device_batch) == (0.0, [], None)
    stages.transfer(mine)
    assert (mine.stages.transfer, len(mine.spans), mine.device_batch) == (1.0, 1, "there")
    # Nothing is brought to a device that trains no more.
    stages.end()
    stages.transfer(mine)
    assert full.asked == 2
