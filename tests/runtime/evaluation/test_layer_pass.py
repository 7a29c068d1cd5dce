from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from gnnscale.feature import HostFeatures
from gnnscale.graph import Graph
from gnnscale.model import GCN
from gnnscale.runtime.evaluation.layer_pass import LayerPass, as_pieces, close
from gnnscale.runtime.evaluation.plan import Limits, find_work
from gnnscale.runtime.evaluation.rows import FileRows, Workers


@pytest.mark.parametrize("hidden_bytes", [None, 0])
def test_pieces_cover_a_layer_once_and_fill_its_rows(
    random_graph: Callable[..., Graph], hidden_bytes: int | None
) -> None:
    graph = random_graph(300, 2000, num_features=8)
    model = GCN(hidden=32, num_layers=2).build(num_features=8, num_classes=3).eval()
    limits = Limits(chunk_edges=200, chunk_vertices=40, hidden_bytes=hidden_bytes)
    work = find_work(model, graph, range(300), limits, num_threads=2)
    workers, below = Workers(2), HostFeatures.of(graph)
    with torch.no_grad(), workers.running():
        passes = LayerPass(model, graph, work, limits, workers)
        groups = [list(group) for group in passes.pieces(0, below, range(300))]
        pieces = [piece for group in groups for piece in group]
        assert len(pieces) > 8
        hidden = passes.output(0, 300)
        assert isinstance(hidden, FileRows) is (hidden_bytes == 0)
        chunks = list(passes.compute(0, groups, hidden))
        ends = torch.tensor([block.num_dst for block, _ in chunks]).cumsum(0).tolist()
        assert [piece.first for piece in pieces] == [0, *ends[:-1]]
        assert ends[-1] == 300
        # Those of the last layer are kept nowhere.
        assert passes.output(1, 300) is None
        logits = [rows for _, rows in passes.compute(1, passes.pieces(1, hidden, range(300)), None)]
        assert len(logits) > 8
        # What was read before gives the same rows again.
        again = passes.output(0, 300)
        for _ in passes.compute(0, [as_pieces(chunks)], again):
            pass
        everything = torch.arange(300, dtype=torch.int32).numpy()
        rows = [
            each.gather(everything, dtype=torch.float32, num_threads=1)[0]
            for each in (hidden, again)
        ]
        assert torch.equal(*rows)
        close(hidden)
        close(again)
    assert torch.cat(logits).shape == (300, 3)
