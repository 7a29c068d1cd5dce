import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.run.checkpoint import LAST
from gnnscale.run.checkpoint.replicas import CheckpointInfo, newest


def found(step: int, digest: str = "a") -> CheckpointInfo:
    return CheckpointInfo(step=step, digest=digest)


def test_the_newest_by_hand() -> None:
    assert newest([]) is None
    assert newest([None, None]) is None
    assert newest([None, found(3), found(7), None, found(5)]) == 2
    assert newest([found(4), None, found(4, "b")]) == 0


@given(st.lists(st.none() | st.integers(0, 5).map(found), max_size=6))
def test_nobody_has_done_more_steps_than_the_newest(machines: list[CheckpointInfo | None]) -> None:
    chosen = newest(machines)
    steps = [-1 if each is None else each.step for each in machines]
    best = max(steps, default=-1)
    assert chosen == (None if best < 0 else steps.index(best))


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_machines_agree_on_a_checkpoint_and_keep_copies(together, launched, tmp_path) -> None:
    launched(tmp_path / "run", "epochs=1")
    together("check_copies", 3, tmp_path / "run" / LAST)
