"""What the host does in a step, counted: of a device that costs nothing, its own work is all."""

import gc
import sys
from typing import Any

import pytest
from benchmarks.null_device import OUTCOME, plan
from losses import Losses

#: Calls of Python functions, and of those in C, in a step that its device owns.
MAX_CALLS = 220
OPTIONS = ("batch_size=8", "epochs=1", "runtime.checkpoint=false", "runtime.inference=sampled")


class Counting(Losses):
    """Counts calls between two reports of steps."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []
        self.objects: list[int] = []
        self._count = 0

    def _called(self, frame: Any, event: str, argument: Any) -> None:
        self._count += event in ("call", "c_call")

    def stepped(self, record: Any) -> None:
        sys.setprofile(None)
        super().stepped(record)
        self.calls.append(self._count)
        self.objects.append(len(gc.get_objects()))
        self._count = 0
        sys.setprofile(self._called)


@pytest.mark.long
def test_a_step_that_the_device_owns_takes_few_calls(run, tmp_path) -> None:
    counting = Counting()
    try:
        run(tmp_path, plan("owned_nothing"), *OPTIONS, watched=counting)
    finally:
        sys.setprofile(None)
    assert counting.steps == [OUTCOME.loss] * len(counting.steps)
    calls = sorted(counting.calls[5:])
    assert len(calls) > 30
    assert calls[-2] <= MAX_CALLS
    # What a step makes, it takes away.
    assert counting.objects[-1] <= counting.objects[10] + 5
