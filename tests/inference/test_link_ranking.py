from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.data import from_arrays
from gnnscale.inference import link_ranking
from gnnscale.inference.link_ranking import LinkExaminer
from gnnscale.nn import GraphSAGE
from gnnscale.nn.link_decoder import LinkGNN, make_decoder
from gnnscale.run.tasks.edge_split import EdgeSplit
from gnnscale.run.tasks.links import LinkTask
from gnnscale.sampling import Candidates

#: Vertices 0 to 5 are users, 6 to 17 films.
USERS, NUM, WIDTH = 6, 18, 3


class Known:
    """Predictor whose rows are given; small whole numbers give equal scores."""

    def __init__(self, seed: int) -> None:
        self.table = np.random.default_rng(seed).integers(-1, 2, (NUM, WIDTH)).astype(np.float32)

    def prepare(self, vertices: Any) -> None:
        self.prepared = vertices

    def logits(self, vertices: Any) -> Any:
        return self.table[vertices]


def make_task(seed: int, *, undirected: bool, kinds: Any, **options: Any) -> LinkTask:
    generator = np.random.default_rng(seed)
    pairs = np.stack([generator.integers(0, USERS, 60), generator.integers(USERS, NUM, 60)], 1)
    pairs = generator.permutation(np.unique(pairs, axis=0)).astype(np.int32)
    train, valid, test = np.split(pairs, [len(pairs) - 16, len(pairs) - 8])
    ends = np.concatenate([train, train[:, ::-1]]) if undirected else train
    graph = from_arrays((ends[:, 0], ends[:, 1]), np.zeros((NUM, 1), np.float32))
    flags = {"undirected": undirected, "directed": False, "bipartite": True}
    return LinkTask(
        split=EdgeSplit(graph=graph, train=train, valid=valid, test=test, **flags),
        **{"num_negatives": 1, "hits": (1, 3), "k": (2, 5), "seed": 0} | options,
        num_candidates=None,
        candidates=None if kinds is None else Candidates.from_kinds(kinds),
    )


def examiner(task: LinkTask, predictor: Any, decoder: str = "dot") -> LinkExaminer:
    gnn = GraphSAGE(hidden=WIDTH).build(num_features=1, num_classes=WIDTH)
    return LinkExaminer(task, LinkGNN(gnn, make_decoder(decoder, WIDTH)), predictor)


def by_brute_force(task: LinkTask, part: str, score: Any) -> dict[str, float]:
    """Rank by a loop over sources and shuffled ties: the mean metrics of 400 orders."""
    known = {"train": [], "valid": ["train"], "test": ["train", "valid"]}[part]
    known_edges = {tuple(pair) for name in known for pair in getattr(task.split, name).tolist()}
    if not task.filters_known:
        known_edges = set()
    edges = getattr(task.split, part).tolist()
    kinds = np.zeros(NUM) if task.candidates is None else task.candidates.kinds
    wanted: dict[Any, set[int]] = {}
    for source, target in edges:
        wanted.setdefault((source, kinds[target]), set()).add(target)
    ranks = {}
    for (source, kind), targets in wanted.items():
        kept = [
            vertex
            for vertex in range(NUM)
            if kinds[vertex] == kind and vertex != source and (source, vertex) not in known_edges
        ]
        scores = {vertex: score(source, vertex) for vertex in kept}
        for target in targets:
            above = sum(scores[vertex] > scores[target] for vertex in kept)
            equal = [vertex for vertex in kept if scores[vertex] == scores[target]]
            tied = sorted(targets & {*equal})
            place = tied.index(target) + 1
            ranks[source, target] = above + place * (len(equal) + 1) / (len(tied) + 1)
    values: dict[str, list[float]] = {"mrr": [1 / rank for rank in ranks.values()]}
    for k in task.hits:
        values[f"hits@{k}"] = [rank <= k for rank in ranks.values()]
    for k in task.k:
        for (source, _), targets in wanted.items():
            places = sorted(ranks[source, target] for target in targets)
            best = min(k, len(places))
            hits = [(i, place) for i, place in enumerate(places, 1) if place <= k]
            ideal = sum(1 / np.log2(i + 1) for i in range(1, best + 1))
            gain = sum(1 / np.log2(place + 1) for _, place in hits)
            values.setdefault(f"recall@{k}", []).append(len(hits) / len(places))
            values.setdefault(f"map@{k}", []).append(sum(i / p for i, p in hits) / best)
            values.setdefault(f"ndcg@{k}", []).append(gain / ideal)
    return {name: float(np.mean(each)) for name, each in values.items()}


FILMS = np.repeat([-1, 0], [USERS, NUM - USERS]).astype(np.int32)
BOTH = np.repeat([0, 1, 2], [USERS, 5, NUM - USERS - 5]).astype(np.int32)


@given(
    st.integers(0, 1000),
    st.booleans(),
    st.sampled_from([None, FILMS, BOTH]),
    st.sampled_from(["train", "valid", "test"]),
    st.booleans(),
    st.sampled_from([1, 300, 64 << 20]),
)
@settings(deadline=None)
def test_metrics_are_those_of_brute_force(
    seed: int, undirected: bool, kinds: Any, part: str, filters: bool, slice_bytes: int
) -> None:
    task = make_task(seed, undirected=undirected, kinds=kinds, filters_known=filters)
    predictor = Known(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(link_ranking, "SLICE_BYTES", slice_bytes)
        tested = examiner(task, predictor)
        (found,) = tested.measure([part])
        popular = tested.measure_popularity(part)
    table = predictor.table
    assert tuple(found) == task.measures == tuple(popular)
    expected = by_brute_force(task, part, lambda a, b: float(table[a] @ table[b]))
    assert found == pytest.approx(expected)
    degrees = np.diff(task.graph.indptr)
    assert popular == pytest.approx(by_brute_force(task, part, lambda _, b: int(degrees[b])))


def test_a_network_ranks_in_slices_what_it_ranks_at_once(monkeypatch: Any) -> None:
    torch.manual_seed(0)
    tested = examiner(make_task(0, undirected=True, kinds=FILMS), Known(0), "mlp")
    whole = tested.measure(["valid", "test"])
    monkeypatch.setattr(link_ranking, "SLICE_BYTES", 100)
    assert [list(each.values()) for each in tested.measure(["valid", "test"])] == [
        pytest.approx(list(each.values())) for each in whole
    ]


def test_a_model_without_numbers_ranks_last() -> None:
    predictor = Known(0)
    predictor.table[:] = np.nan
    task = make_task(0, undirected=True, kinds=FILMS, filters_known=False)
    (found,) = examiner(task, predictor).measure(["test"])
    assert found["recall@5"] == found["hits@3"] == 0


def test_sampled_candidates_have_a_baseline_too() -> None:
    """The most popular film is ahead of others, of which no other has as many edges."""
    task = make_task(0, undirected=True, kinds=FILMS)
    degrees = np.diff(task.graph.indptr)
    best = int(degrees[USERS:].argmax()) + USERS
    test = np.array([[0, best]], np.int32)
    task = replace(task, split=replace(task.split, test=test), num_candidates=7)
    popular = examiner(task, Known(0)).measure_popularity("test")
    assert tuple(popular) == ("mrr", "hits@1", "hits@3")
    assert popular["hits@3"] == 1


def test_all_candidates_are_prepared() -> None:
    predictor = Known(0)
    examiner(make_task(0, undirected=True, kinds=FILMS), predictor).prepare(["test"])
    assert {*range(USERS, NUM)} <= {*predictor.prepared.tolist()}
