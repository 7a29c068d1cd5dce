"""Programs of models whose graph has weights of edges, or self loops and features of edges."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from model_runs import edge_index
from one_line import one_line

import gnnscale
from gnnscale.data import from_arrays
from gnnscale.graph import Graph
from gnnscale.inference.export.weights import ExportConfig, ExportedWeights, export_model
from gnnscale.inference.layerwise import LayerwiseInference
from gnnscale.nn import APPNP, GAT, GCN, GIN, SGC, GATv2, GraphSAGE

SIZE = 120


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def make_graph(*, loops: bool = False, width: int = 0, weighted: bool = True) -> Graph:
    """Edges of which few have a reverse, of very different weights, some of weight 0."""
    generator = np.random.default_rng(0)
    src = generator.integers(0, SIZE, 900)
    # The last vertices have no in-edges.
    dst = (src + generator.integers(1, SIZE - 20, 900)) % (SIZE - 20)
    same = src == dst
    src, dst = src[~same], dst[~same]
    if loops:
        src, dst = np.append(src, [3, 3, 7, 119]), np.append(dst, [3, 3, 7, 119])
    weights = generator.exponential(3.0, len(src)).astype(np.float32)
    weights[(np.arange(len(src)) % 9 == 0) | (dst == 5)] = 0
    rows = generator.standard_normal((SIZE, 6), np.float32)
    attr = generator.standard_normal((len(src), width), np.float32) if width else None
    labels = generator.integers(0, 4, SIZE)
    names = "train_idx", "valid_idx", "test_idx"
    splits = zip(names, np.split(np.arange(SIZE), [60, 90]), strict=True)
    more: Any = {"edge_weights": weights if weighted else None, "edge_features": attr}
    return from_arrays((src, dst), rows, labels, num_classes=8, **dict(splits), **more)


def ran(done: ExportedWeights, library: str, g: Graph, *, loops: bool = False) -> torch.Tensor:
    """The logits of the printed program, of inputs that are made as the note says."""
    module = pytest.importorskip("torch_geometric" if library == "pyg" else "dgl")
    given: dict[str, Any] = {"np": np, "g": g, library: module, "torch_geometric": module}
    ends = edge_index(g)
    weights = None if g.edge_weights is None else torch.from_numpy(np.array(g.edge_weights))
    attr = None if g.edge_rows is None else torch.from_numpy(g.edge_features[g.edge_rows])
    rows = torch.from_numpy(np.array(g.features))
    if library == "dgl":
        graph = module.graph(tuple(ends), num_nodes=g.num_vertices)
        graph.ndata["feat"] = rows
        if weights is not None:
            graph.edata["weight"] = weights
        if attr is not None:
            graph.edata["feat"] = attr
        given["graph"] = graph
    else:
        given |= {"x": rows, "edge_index": ends, "edge_weight": weights, "edge_attr": attr}
    snippet = done.snippet
    if loops and "add_self_loops=False" in done.note:
        for option in ("dropout=", "alpha=", "K=3)", "concat="):
            snippet = snippet.replace(option, f"add_self_loops=False, {option}")
        found = re.search(r"and (edge_index.* = torch_geometric\.utils\..*); PyG", done.note)
        exec(found[1], given)
    with torch.no_grad():
        exec(snippet, given)
    return given["logits"]


def check(g: Graph, options: Any, library: str, folder: Path, *, loops: bool) -> str:
    """The program of a model of random weights has its logits; return what is noted of it."""
    model = options.build(num_features=6, num_classes=8, num_edge_features=g.num_edge_features)
    generator = torch.Generator().manual_seed(1)
    for name, each in model.eval().state_dict(keep_vars=True).items():
        if each.is_floating_point():
            torch.nn.init.normal_(each, std=0.3, generator=generator)
        if name.endswith("running_var"):
            each.abs_()
    logits = LayerwiseInference(model, g, num_threads=1).logits()
    config = ExportConfig(run=folder, format=library, out=folder / f"{library}.safetensors")
    done = export_model(config, options, model, weighted=g.edge_weights is not None)
    found = ran(done, library, g, loops=loops)
    torch.testing.assert_close(found, logits, rtol=1e-5, atol=1e-5)
    return done.note


#: As many hidden features as classes, which no module may mistake for each other.
SIZES: Any = {"hidden": 8, "num_layers": 3}
POOL, SHARED = partial(GraphSAGE, aggregator="pool"), partial(GATv2, share_weights=True)
RESIDUAL = {"residual": True, "jumping": "cat"}
LOOPED = (GCN, SGC, APPNP, GraphSAGE, GIN)


@pytest.mark.long
@pytest.mark.parametrize("library", ["pyg", "dgl"])
@pytest.mark.parametrize(
    ("model", "loops", "weighted"),
    [
        *((each, False, True) for each in (SGC, APPNP, GAT, GATv2, POOL)),
        *((each, True, True) for each in LOOPED),
        *((each, True, False) for each in (*LOOPED, GAT, GATv2, POOL, SHARED)),
        (partial(GCN, residual=True, jumping="max", norm="batch"), False, True),
        (partial(GCN, jumping="cat", norm="layer"), False, True),
        (partial(GraphSAGE, residual=True, jumping="max"), False, True),
        (partial(GraphSAGE, norm="batch"), False, True),
        (partial(GIN, jumping="cat", norm="batch"), False, True),
    ],
)
def test_same_logits(model: Any, loops: bool, weighted: bool, library: str, tmp_path: Path) -> None:
    graph, options = make_graph(loops=loops, weighted=weighted), model(**SIZES)
    note = check(graph, options, library, tmp_path, loops=loops)
    reads = weighted and model not in (GAT, GATv2, POOL)
    assert ("np.array(g.edge_weights)" in note) == reads
    assert not reads or "np.repeat(np.arange(g.num_vertices), np.diff(g.indptr))" in note


@pytest.mark.long
@pytest.mark.parametrize("model", [GAT, GATv2, GIN])
@pytest.mark.parametrize(
    ("options", "weighted", "loops"),
    [({}, False, True), (RESIDUAL, False, False), (RESIDUAL, True, True)],
)
def test_features_of_edges(model, options, weighted, loops, tmp_path) -> None:
    graph = make_graph(loops=loops, width=3, weighted=weighted)
    given = model(**SIZES, **options)
    for library in ("pyg", "dgl") if model is GIN else ("pyg",):
        if model is not GIN or not weighted:
            check(graph, given, library, tmp_path, loops=loops)
            continue
        with one_line(
            f"format={library}: layers of GIN that read features of edges take no weights of edges "
            "there; result.model(x, edge_index, edge_weight, edge_attr) takes both, and "
            "format=safetensors writes them"
        ):
            check(graph, given, library, tmp_path, loops=loops)
    model = given.build(num_features=6, num_classes=8, num_edge_features=3)
    config = ExportConfig(run=tmp_path, out=tmp_path / "own.safetensors")
    program: dict[str, Any] = {}
    exec(export_model(config, given, model, weighted=False).snippet, program)
    assert program["model"].uses_edge_features


@pytest.mark.long
def test_a_run_of_an_earlier_release_reads_its_graph(tmp_path: Path) -> None:
    sizes = {"epochs": 2, "fanouts": [-1, -1], "hidden": 8, "batch_size": 32, "num_threads": 1}
    run = gnnscale.train(make_graph(), "gcn", directory=tmp_path / "run", **sizes)
    file = run.directory / "checkpoints" / "signature.json"
    entries = json.loads(file.read_text())
    assert entries.pop("edge_weights") is True
    del entries["crc32"]
    file.write_text(json.dumps(entries))
    loaded = gnnscale.load(run.directory)
    done = loaded.export(tmp_path / "m.safetensors", format="pyg")
    assert "edge_weight=edge_weight" in done.snippet
    expected = torch.from_numpy(run.predict(what="logits"))
    torch.testing.assert_close(ran(done, "pyg", run.graph), expected, rtol=1e-5, atol=1e-5)
