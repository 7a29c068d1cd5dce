"""The check of mini-batches against their rule, on batches that keep and that break it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from timed_graphs import STEP, TimedLists, cases, timed_graph

from gnnscale import GraphError
from gnnscale.graph import Graph, GraphSchema
from gnnscale.sampling.time_checks import check_times
from gnnscale.sampling.time_rule import TimeRule
from gnnscale.sampling.timed import TimedSampler


@settings(max_examples=150, deadline=None)
@given(cases())
def test_samples_keep_their_rule(case) -> None:
    graph = timed_graph(case.schema, case.lists)
    for disjoint in (False, True):
        batch = case.sampler().sample_units(*case.arrays, STEP, disjoint=disjoint)
        check_times(graph, batch, case.rule)


CHAIN = GraphSchema.of({"vertex": 4}, [("vertex", "edge", "vertex")])
#: 0 <- 1 at time 5, 1 <- 2 at time 7, 2 <- 3 at time 6.
LISTS: TimedLists = {(0, 0): [(5, 1)], (0, 1): [(7, 2)], (0, 2): [(6, 3)]}


@pytest.mark.parametrize(
    ("taken", "checked", "error"),
    [
        (
            TimeRule(),
            TimeRule(bound="strict"),
            "sampler.time=seed: edge 2 to 1 of time 7, with cut-off 7 of the source: expected a "
            "time < 7",
        ),
        (
            TimeRule(),
            TimeRule(window=1),
            "sampler.time=seed: edge 1 to 0 of time 5, with cut-off 7 of the source: expected a "
            "time <= 7, within 1",
        ),
        (
            TimeRule(),
            TimeRule(rule="destination", bound="inclusive"),
            "sampler.time=destination: edge 1 to 0 of time 5, with cut-off 7 of the source: "
            "expected a time <= 7",
        ),
        (
            TimeRule(),
            TimeRule(rule="walk", direction="forward"),
            "sampler.time=walk: edge 3 to 2 of time 6, with cut-off 7 of the source: expected a "
            "time <= 7, since 7",
        ),
    ],
)
def test_edges_that_break_a_rule_are_named(taken, checked, error) -> None:
    graph = replace(timed_graph(CHAIN, LISTS), types=None)
    sampler = TimedSampler(graph, fanouts=[-1, -1, -1], rule=taken)
    batch = sampler.sample_units(np.array([0]), np.array([7]), STEP)
    check_times(graph, batch, taken)
    with pytest.raises(GraphError) as caught:
        check_times(graph, batch, checked)
    assert str(caught.value) == error


def test_edges_that_the_graph_lacks_are_named() -> None:
    graph = replace(timed_graph(CHAIN, LISTS), types=None)
    sampler = TimedSampler(graph, fanouts=[-1], rule=TimeRule())
    batch = sampler.sample_units(np.array([0]), np.array([7]), STEP)
    other = replace(batch, input_vertices=np.array([0, 3], np.int32))
    with pytest.raises(GraphError, match="edge 3 to 0 of time unknown"):
        check_times(graph, other, TimeRule())


def test_batches_without_cutoffs_are_refused() -> None:
    graph = replace(timed_graph(CHAIN, LISTS), types=None)
    batch = TimedSampler(graph, fanouts=[-1], rule=TimeRule()).sample_units(
        np.array([0]), np.array([7]), STEP
    )
    with pytest.raises(GraphError, match="expected a mini-batch with cut-offs"):
        check_times(graph, replace(batch, cutoffs=None), TimeRule())


def test_a_sampler_that_checks_refuses_lists_out_of_order() -> None:
    graph = timed_graph(CHAIN, {(0, 0): [(1, 1), (2, 2), (3, 3)]})
    seeds, cutoffs = np.array([0]), np.array([3])

    def sample(graph: Graph) -> int:
        sampler = TimedSampler(graph, fanouts=[-1], rule=TimeRule(), checks=True)
        return sampler.sample_units(seeds, cutoffs, 0).num_edges

    assert sample(graph) == 3
    # The sampler searches lists that ascend; the check reads them whole.
    times = graph.times.edges.copy()
    times[0] = 9
    late = replace(graph, times=replace(graph.times, edges=times))
    with pytest.raises(GraphError, match=r"sampler\.time=seed: edge 1 to 0 of time 9"):
        sample(late)
