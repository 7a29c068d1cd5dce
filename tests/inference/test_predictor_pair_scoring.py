from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from gnnscale.graph import Graph
from gnnscale.inference import predictor as pairs
from gnnscale.inference.predictor import PairScorer, _top
from gnnscale.nn import GraphSAGE
from gnnscale.nn.link_decoder import LinkGNN, make_decoder

WIDTH, NUM = 6, 40


class Known:
    def __init__(self) -> None:
        self.rows_of = np.random.default_rng(0).standard_normal((NUM, WIDTH), np.float32)

    def prepare(self, vertices: Any) -> None:
        pass

    def rows(self, vertices: Any) -> Iterator[Any]:
        found = self.rows_of if vertices is None else self.rows_of[vertices]
        yield from np.array_split(found, 3)


@pytest.fixture(params=["dot", "mlp"])
def scorer(request: Any, random_graph: Any, monkeypatch: Any) -> tuple[PairScorer, torch.Tensor]:
    """Return a scorer, and the scores ``[NUM, NUM]`` of all pairs, one by one."""
    torch.manual_seed(0)
    gnn = GraphSAGE(hidden=WIDTH).build(num_features=4, num_classes=WIDTH)
    model = LinkGNN(gnn, make_decoder(request.param, WIDTH))
    graph: Graph = random_graph(num_vertices=NUM)
    known = Known()
    rows = torch.from_numpy(known.rows_of)
    with torch.no_grad():
        every = torch.stack([torch.stack([model.decoder(a, b) for b in rows]) for a in rows])
    return PairScorer(model, known, graph), every  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.parametrize(
    ("slice_bytes", "memory_bytes"), [(1, 1 << 20), (500, 0), (64 << 20, 1 << 20)]
)
def test_scores_and_partners_are_those_of_all_pairs(
    scorer, monkeypatch, slice_bytes, memory_bytes
) -> None:
    monkeypatch.setattr(pairs, "_SLICE_BYTES", slice_bytes)
    monkeypatch.setattr(pairs, "_MEMORY_BYTES", memory_bytes)
    found, every = scorer
    some = np.random.default_rng(1).integers(0, NUM, (30, 2)).astype(np.int32)
    scores = np.concatenate(list(found.scores(some)))
    assert scores == pytest.approx(every[some[:, 0], some[:, 1]].numpy(), abs=1e-5)

    wanted, others = np.array([7, 3, 39]), np.array([0, 3, 5, 7, 8, 20, 39])
    for candidates, k in ((None, 1), (None, 5), (None, NUM - 1), (others, 4), (others, 6)):
        columns = np.arange(NUM) if candidates is None else candidates
        expected = every[wanted][:, columns].clone()
        expected[torch.from_numpy(wanted)[:, None] == torch.from_numpy(columns)] = -torch.inf
        best = expected.sort(dim=1, descending=True).values[:, :k].numpy()
        parts, scores = zip(*found.partners(wanted, candidates, k), strict=True)
        assert np.concatenate(scores) == pytest.approx(best, abs=1e-5)
        partners = np.concatenate(parts)
        # Scores that are nearly equal may change places by rounding.
        assert every[wanted[:, None], partners].numpy() == pytest.approx(best, abs=1e-5)
        assert all(len(set(row)) == k and set(row) <= set(columns) for row in partners.tolist())
        assert not (partners == wanted[:, None]).any()


@pytest.mark.parametrize(("columns", "k"), [(64 * 12, 3), (64 * 40 + 17, 9), (100, 2), (5, 5)])
def test_the_highest_of_a_row_are_those_of_sorting_all(columns: int, k: int) -> None:
    scores = torch.from_numpy(np.random.default_rng(columns).integers(0, 90, (7, columns)))
    scores = scores.float().contiguous()
    found, places = _top(scores, k)
    assert torch.equal(found, scores.sort(dim=1, descending=True).values[:, :k])
    assert torch.equal(scores.gather(1, places), found)
    assert all(len(set(row.tolist())) == k for row in places)
