"""Programs of models whose graph has weights of edges, or self loops and features of edges."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
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
    return from_arrays(
        (src, dst),
        rows,
        labels,
        train_idx=np.arange(60),
        valid_idx=np.arange(60, 90),
        test_idx=np.arange(90, SIZE),
        num_classes=4,
        edge_weights=weights if weighted else None,
        edge_features=attr,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Train a model once for all libraries."""
    folder = tmp_path_factory.mktemp("runs")
    runs: dict[str, Any] = {}

    def run(model: str, **options: Any) -> Any:
        key = f"{model} {options}"
        if key not in runs:
            runs[key] = train(folder / str(len(runs)), model, **options)
        return runs[key]

    return run


def train(output: Path, model: str, **options: Any) -> Any:
    return gnnscale.train(
        make_graph(),
        model,
        directory=output,
        epochs=2,
        fanouts=[-1, -1],
        hidden=8,
        batch_size=32,
        num_threads=1,
        options={f"model.{name}": value for name, value in options.items()},
    )


def ran(done: ExportedWeights, library: str, g: Graph, *, loops: bool = False) -> torch.Tensor:
    """The logits of the printed program, of inputs that are made as the note says."""
    module = pytest.importorskip("torch_geometric" if library == "pyg" else "dgl")
    given: dict[str, Any] = {"np": np, "g": g, library: module, "torch_geometric": module}
    source = "torch.from_numpy(g.indices.astype(np.int64)), torch.from_numpy("
    exec(f"import torch\nends = {source}{OWN_ENDS})", given)
    weights = None if g.edge_weights is None else torch.from_numpy(np.array(g.edge_weights))
    attr = None if g.edge_rows is None else torch.from_numpy(g.edge_features[g.edge_rows])
    rows = torch.from_numpy(np.array(g.features))
    if library == "dgl":
        graph = module.graph(given["ends"], num_nodes=g.num_vertices)
        graph.ndata["feat"] = rows
        if weights is not None:
            graph.edata["weight"] = weights
        if attr is not None:
            graph.edata["feat"] = attr
        given["graph"] = graph
    else:
        given |= {"x": rows, "edge_index": torch.stack(given["ends"])}
        given |= {"edge_weight": weights, "edge_attr": attr}
    snippet = done.snippet
    if loops and "add_self_loops=False" in done.note:
        for option in ("dropout=", "alpha=", "K=2)", "concat="):
            snippet = snippet.replace(option, f"add_self_loops=False, {option}")
        found = re.search(r"and (edge_index.* = torch_geometric\.utils\..*); PyG", done.note)
        exec(found[1], given)
    with torch.no_grad():
        exec(snippet, given)
    return given["logits"]


OWN_ENDS = "np.repeat(np.arange(g.num_vertices), np.diff(g.indptr))"
EACH_LIBRARY = pytest.mark.parametrize("library", ["pyg", "dgl"])


@EACH_LIBRARY
@pytest.mark.parametrize(
    ("model", "options"),
    [
        *((each, {}) for each in ("gcn", "sage", "gin", "sgc", "appnp", "gat", "gatv2")),
        ("sage", {"aggregator": "pool"}),
        ("gcn", {"residual": True, "jumping": "max", "norm": "batch"}),
        ("gcn", {"jumping": "cat", "norm": "layer"}),
        ("sage", {"residual": True, "jumping": "max"}),
        ("sage", {"norm": "batch"}),
        ("gin", {"jumping": "cat", "norm": "batch"}),
    ],
)
def test_same_logits_on_weighted_graphs(trained, model, options, library, tmp_path) -> None:
    run = trained(model, **options)
    expected = torch.from_numpy(run.predict(what="logits"))
    done = run.export(tmp_path / "m.safetensors", format=library)
    found = ran(done, library, run.graph)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    reads = model not in ("gat", "gatv2") and not options.get("aggregator")
    assert ("np.array(g.edge_weights)" in done.note) == reads
    assert not reads or OWN_ENDS in done.note


@EACH_LIBRARY
@pytest.mark.parametrize("model", [GCN, SGC, APPNP, GraphSAGE, GIN])
def test_weighted_graphs_with_loops(model: Any, library: str, tmp_path: Path) -> None:
    check(make_graph(loops=True), model(hidden=8, num_layers=2), library, tmp_path)


@pytest.mark.parametrize("options", [{}, {"residual": True, "jumping": "cat"}])
@pytest.mark.parametrize("model", [GAT, GATv2, GIN])
@pytest.mark.parametrize("weighted", [False, True])
def test_features_of_edges_with_loops(model, options, weighted, tmp_path) -> None:
    graph = make_graph(loops=True, width=3, weighted=weighted)
    given = model(hidden=8, num_layers=2, **options)
    if model is not GIN:
        check(graph, given, "pyg", tmp_path)
        return
    for library in ("pyg", "dgl"):
        if not weighted:
            check(graph, given, library, tmp_path)
            continue
        with one_line(
            f"format={library}: layers of GIN that read features of edges take no weights of edges "
            "there; result.model(x, edge_index, edge_weight, edge_attr) takes both, and "
            "format=safetensors writes them"
        ):
            check(graph, given, library, tmp_path)


def check(graph: Graph, given: Any, library: str, folder: Path) -> None:
    """The program of a model of random weights has its logits, also on a graph with loops."""
    model = given.build(num_features=6, num_classes=4, num_edge_features=graph.num_edge_features)
    model.eval()
    generator = torch.Generator().manual_seed(1)
    for each in model.parameters():
        torch.nn.init.normal_(each, std=0.3, generator=generator)
    logits = LayerwiseInference(model, graph, num_threads=1).logits()
    config = ExportConfig(run=folder, format=library, out=folder / f"{library}.safetensors")
    done = export_model(config, given, model, weighted=graph.edge_weights is not None)
    found = ran(done, library, graph, loops=True)
    torch.testing.assert_close(found, logits, rtol=1e-5, atol=1e-5)


def test_a_run_of_an_earlier_release_reads_its_graph(tmp_path: Path) -> None:
    run = train(tmp_path / "run", "gcn")
    file = run.directory / "checkpoints" / "signature.json"
    entries = json.loads(file.read_text())
    assert entries.pop("edge_weights") is True
    del entries["crc32"]
    file.write_text(json.dumps(entries))
    done = gnnscale.load(run.directory).export(tmp_path / "m.safetensors", format="pyg")
    assert "edge_weight=edge_weight" in done.snippet
