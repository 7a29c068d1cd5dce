import numpy as np
import pytest

from gnnscale import ops
from gnnscale.core.errors import ConfigError
from gnnscale.data import RMat, synthetic
from gnnscale.data.storage import edge_spool
from gnnscale.data.synthetic import RmatDraws

GRAPH500 = {"a": 0.57, "b": 0.19, "c": 0.19}


def in_order(src, dst):
    return sorted(zip(src.tolist(), dst.tolist(), strict=True))


@pytest.mark.long
@pytest.mark.parametrize("slice_edges", [100, 1 << 22])
@pytest.mark.parametrize("memory_bytes", [8000, 1 << 30])
@pytest.mark.parametrize(("num_vertices", "num_edges"), [(2, 0), (60, 885), (70_000, 5000)])
def test_slices_are_the_edges_that_memory_would_hold(
    tmp_path, monkeypatch, num_vertices, num_edges, memory_bytes, slice_edges
):
    """The second graph has half of all pairs, and so needs many rounds of draws."""
    monkeypatch.setattr(synthetic, "_SLICE_EDGES", slice_edges)
    monkeypatch.setattr(edge_spool, "_SLICE_EDGES", slice_edges)
    sizes = {"num_vertices": num_vertices, "num_edges": num_edges}
    draws = RmatDraws(**sizes, **GRAPH500, seed=5)
    slices = list(draws.slices(tmp_path, memory_bytes=memory_bytes))
    assert all(len(src) <= slice_edges for src, _ in slices)
    none = np.empty(0, np.int32)
    found = [np.concatenate([none, *(each[end] for each in slices)]) for end in (0, 1)]
    expected = ops.rmat_edges(**sizes, **GRAPH500, seed=5, num_threads=1)
    assert in_order(*found) == in_order(*expected)
    assert list(tmp_path.iterdir()) == []


def test_draws_that_are_all_alike(tmp_path):
    draws = RmatDraws(num_vertices=1000, num_edges=9, a=1.0, b=0.0, c=0.0, seed=0)
    message = r"^dataset.a=1.0, b=0.0, c=0.0: expected probabilities with dataset.num_edges=9 "
    with pytest.raises(ConfigError, match=message):
        list(draws.slices(tmp_path, memory_bytes=1000))
    assert list(tmp_path.iterdir()) == []


def test_a_graph_is_drawn_in_slices(tmp_path, monkeypatch):
    small = {"num_vertices": 300, "num_edges": 2000, "num_classes": 3, "num_features": 2}
    one = RMat(name="r", store=str(tmp_path / "one"), **small).open()
    monkeypatch.setattr(ops, "rmat_edges", None)
    monkeypatch.setattr(synthetic, "_SLICE_EDGES", 64)
    asked, draw = [], ops.rmat_draws
    monkeypatch.setattr(ops, "rmat_draws", lambda *given: asked.append(given[6]) or draw(*given))
    two = RMat(name="r", store=str(tmp_path / "two"), memory_bytes=5000, **small).open()
    assert one.content == two.content
    assert max(asked) == 64
