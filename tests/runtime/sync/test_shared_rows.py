import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.runtime.sync.shared_rows import Peers


@pytest.mark.timeout(120)
def test_processes_read_each_others_rows(together: Any) -> None:
    together("check_shared_rows", 3)


@pytest.mark.timeout(120)
def test_a_process_without_an_answer_learns_why(together: Any) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
    together("check_lost_rows", 2, port)


def test_the_process_of_the_same_number_answers() -> None:
    # Two machines of two processes each: ranks 0 and 1, 2 and 3.
    parts = [1, 1, 0, 0]
    assert Peers.of(parts, 0) == Peers(owners=(2, 0), askers=(2,))
    assert Peers.of(parts, 3) == Peers(owners=(3, 1), askers=(1,))
    # The second machine has one process, which both of the first ask; it asks the first of them.
    parts = [0, 0, 1]
    assert Peers.of(parts, 0) == Peers(owners=(0, 2), askers=(2,))
    assert Peers.of(parts, 1) == Peers(owners=(1, 2), askers=())
    assert Peers.of(parts, 2) == Peers(owners=(0, 2), askers=(0, 1))


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5), data=st.data())
def test_every_question_has_one_who_answers(sizes: list[int], data: st.DataObject) -> None:
    """Machines of any number of processes, whose parts are in any order."""
    order = data.draw(st.permutations(range(len(sizes))))
    parts = [part for part, size in zip(order, sizes, strict=True) for _ in range(size)]
    peers = [Peers.of(parts, rank) for rank in range(len(parts))]
    for rank, each in enumerate(peers):
        assert [parts[owner] for owner in each.owners] == list(range(len(sizes)))
        assert each.owners[parts[rank]] == rank
        for other, theirs in enumerate(peers):
            asks = other != rank and rank in theirs.owners
            assert (other in each.askers) == asks
    if len(set(sizes)) == 1:  # then each answers as many as any other
        assert {len(each.askers) for each in peers} == {len(sizes) - 1}
