from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.core.stages import STAGES, Access, StageTimes, Traffic

COUNTS = st.lists(st.integers(0, 2**40), min_size=40, max_size=40)


def test_stages_are_in_the_order_of_the_pipeline() -> None:
    assert STAGES[0] == "sample"
    assert STAGES[-2:] == ("propagate", "sync")


def test_times_and_rates_by_hand() -> None:
    times = StageTimes(sample=1.0, load=0.5)
    times.add(StageTimes(sample=2.0, sync=3.0))
    assert times == StageTimes(sample=3.0, load=0.5, sync=3.0)
    assert Access(hits=3, peer_hits=1, misses=4).hit_rate == 0.5
    assert Access(link_bytes=10).hit_rate is None
    traffic = Traffic(rows=Access(misses=2)).with_link(
        row_bytes=130, list_bytes=0, request_bytes=64
    )
    assert traffic.rows == Access(misses=2, link_bytes=130, link_requests=3)
    assert traffic.lists == Access()
    assert traffic.link_bytes == 130


@settings(max_examples=20)
@given(COUNTS, COUNTS)
def test_traffic_adds_up_count_by_count(one: list[int], other: list[int]) -> None:
    total = Traffic.from_counts(one) + Traffic.from_counts(other)
    assert total.counts() == [a + b for a, b in zip(one, other, strict=True)]
