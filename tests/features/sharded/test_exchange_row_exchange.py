from hypothesis import given
from hypothesis import strategies as st

from gnnscale.features.sharded.exchange import owners_of


def owners(parts: list[int], rank: int) -> list[int]:
    return owners_of(parts, rank).tolist()


def test_rows_come_from_the_process_of_the_same_number() -> None:
    # Two machines of two processes each: ranks 0 and 1, 2 and 3.
    parts = [1, 1, 0, 0]
    assert owners(parts, 0) == [2, 0]
    assert owners(parts, 3) == [3, 1]
    # The second machine has one process, from which both of the first get rows.
    parts = [0, 0, 1]
    assert owners(parts, 0) == [0, 2]
    assert owners(parts, 1) == [1, 2]
    assert owners(parts, 2) == [0, 2]


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5), data=st.data())
def test_every_part_has_an_owner_that_has_it(sizes: list[int], data: st.DataObject) -> None:
    """Machines of any number of processes, whose parts are in any order."""
    order = data.draw(st.permutations(range(len(sizes))))
    parts = [part for part, size in zip(order, sizes, strict=True) for _ in range(size)]
    asked = [0] * len(parts)
    for rank in range(len(parts)):
        found = owners(parts, rank)
        assert [parts[owner] for owner in found] == list(range(len(sizes)))
        assert found[parts[rank]] == rank
        for owner in found:
            asked[owner] += 1
    if len(set(sizes)) == 1:  # then each serves as many as any other
        assert set(asked) == {len(sizes)}
