from types import SimpleNamespace

import pytest
from benchmarks.cases import all_reduce as script


def test_steps_belong_to_the_way_of_the_sum_that_ends_them() -> None:
    # Six sums in one way, six in the other; the first after a change does not count.
    seconds = [9.0, 1, 1, 1, 1, 1, 7.0, 2, 2, 2, 2, 2, 8.0, 1, 1]
    ends = [sum(seconds[: number + 1]) for number in range(len(seconds))]
    assert script.step_seconds(ends) == {"shared memory": 1.0, "gloo": 2.0}


@pytest.mark.integration
def test_all_sums_are_timed() -> None:
    found = script.sums(SimpleNamespace(workers=[2], rounds=1))
    for way in script.WAYS:
        assert set(found["2 workers"][way]) == set(map(str, script.COUNTS))
        assert min(found["2 workers"][way].values()) > 0
