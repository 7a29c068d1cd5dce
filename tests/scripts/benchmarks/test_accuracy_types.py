"""Accuracy over types beside PyG, on a planted graph in the form of ACM's files."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from benchmarks.cases import accuracy_types as script
from benchmarks.runner import composed
from torch.nn import functional

from gnnscale.backend.typed_loading import open_loader
from gnnscale.data import Heco
from gnnscale.nn import LearnedEmbedding
from gnnscale.nn.optim.update_rules import LazyAdam
from gnnscale.run.typed_inputs import read_by_type

PAPERS = 60
CLASSES = np.arange(PAPERS) % 3


@pytest.fixture
def raw(tmp_path: Path, cache: Path) -> Path:
    """Write papers whose features and two authors are those of their class; 4 subjects of all."""
    folder, papers = tmp_path / "relational" / "acm", np.arange(PAPERS)
    folder.mkdir(parents=True)
    authors = np.concatenate([CLASSES, CLASSES + 3])
    for name, ends in (("pa", authors), ("ps", papers % 4)):
        edges = np.stack([np.resize(papers, len(ends)), ends], 1)
        np.savetxt(folder / f"{name}.txt", edges, fmt="%d", delimiter="\t")
    for name, rows in (("p_feat", np.eye(3)[CLASSES]), ("a_feat", np.eye(6))):
        scipy.sparse.save_npz(folder / f"{name}.npz", scipy.sparse.csr_matrix(rows))
    np.save(folder / "labels.npy", CLASSES)
    for part, ids in zip(("train", "val", "test"), np.split(papers, 3), strict=True):
        np.save(folder / f"{part}_20.npy", ids)
    return folder


def options(raw: Path, model: str) -> list[str]:
    return [*script.COMMON, f"dataset.raw='{raw}'", "num_threads=1", *script.MODELS[model]]


@pytest.mark.parametrize("model", ["rgcn", "rgat", "hgt"])
def test_losses_are_those_of_pyg(model: str, raw: Path) -> None:
    """From the same weights, with weight decay and without dropout."""
    more = ("model.dropout=0", "optimizer.lr=0.02", "optimizer.weight_decay=0.01")
    config, _ = composed(*options(raw, model), *more)
    graph = read_by_type(config.model, config.dataset.open(), seed=0)
    seeds, widths = np.array(graph.train_idx), tuple(graph.input_types.widths.values())
    target = torch.from_numpy(graph.labels[seeds]).long()
    torch.manual_seed(0)
    peer = script.PygModel(config, graph, start="gnnscale")
    torch.manual_seed(0)
    ours = config.model.build_typed(schema=graph.schema, widths=widths, num_classes=3)
    table = torch.tensor(graph.features.learned_rows)
    ours.vertex_rows = LearnedEmbedding(table, LazyAdam(), decays=True)
    optimizer = config.optimizer.build(ours)
    peers = torch.optim.Adam(peer.parameters(), lr=0.02, weight_decay=0.01)
    loader = open_loader(graph, ours, num_threads=1)
    batch = config.sampler.sampler(graph, seed=0, num_threads=1).sample(seeds, 0)
    losses = []
    for _ in range(8):
        logits = ours(batch, loader.read(batch, None)), peer()[seeds]
        pair = [functional.cross_entropy(one, target) for one in logits]
        losses.append([loss.item() for loss in pair])
        for one, loss in zip((optimizer, peers), pair, strict=True):
            one.zero_grad()
            loss.backward()
            one.step()
        ours.vertex_rows.update(optimizer)
    assert losses[-1][0] < 0.95 * losses[0][0]
    np.testing.assert_allclose(*zip(*losses, strict=True), rtol=2e-4, atol=1e-5)


def test_joint_edges_end_with_a_self_edge_of_each_vertex(raw: Path) -> None:
    graph = Heco(raw=str(raw)).open()
    edges, types = script.joint_edges(graph)
    assert edges.shape[1] == len(types) == graph.num_edges + graph.num_vertices
    assert types[-4:].tolist() == [6] * 4  # of subjects, after 4 edge types and 2 vertex types
    assert edges[:, -4:].tolist() == [[66, 67, 68, 69]] * 2
    is_written = types == 1  # the second edge type: authors to papers
    assert sorted(edges[:, is_written].t().tolist())[0] == [60, 0]


@pytest.mark.integration
def test_both_sides_learn(raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "COMMON", (*script.COMMON, "epochs=12", "optimizer.lr=0.02"))
    chosen = Namespace(labels=[20], models=["rgcn"], seeds=1, threads=1, start="pyg")
    chosen.data = raw.parents[1]
    figures = script.run(chosen)
    assert figures["missed"] == []
    assert set(figures["metrics"].values()) == {"macro_f1", "micro_f1"}
    for points in figures["test_metric_points"].values():
        assert min(points["gnnscale"] + points["pyg"]) > 95
