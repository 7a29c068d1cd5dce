from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.cases import all_reduce as script

from gnnscale.distributed.process_group import SINGLE_PROCESS


def test_steps_belong_to_the_way_of_the_sum_that_ends_them() -> None:
    # Six sums in one way, six in the other; the first after a change does not count.
    seconds = [9.0, 1, 1, 1, 1, 1, 7.0, 2, 2, 2, 2, 2, 8.0, 1, 1]
    ends = [sum(seconds[: number + 1]) for number in range(len(seconds))]
    assert script.step_seconds(ends) == {"shared memory": 1.0, "gloo": 2.0}


def test_a_group_alternates(monkeypatch: pytest.MonkeyPatch) -> None:
    ways: list[str] = []
    monkeypatch.setattr(
        type(SINGLE_PROCESS), "sum", lambda self, values: ways.append(self.torch_group)
    )
    groups = {
        name: type(SINGLE_PROCESS)(**vars(SINGLE_PROCESS) | {"torch_group": name})
        for name in script.WAYS
    }
    group: Any = script.alternating(groups)
    for _ in range(13):
        group.sum(None)
    assert ways == ["shared memory"] * 6 + ["gloo"] * 6 + ["shared memory"]
    assert len(group.ends) == 13
    assert group.size == 1


@pytest.mark.integration
def test_all_sums_are_timed() -> None:
    found = script.sums(SimpleNamespace(workers=[2], rounds=1))
    for way in script.WAYS:
        assert set(found["2 workers"][way]) == set(map(str, script.COUNTS))
        assert min(found["2 workers"][way].values()) > 0
