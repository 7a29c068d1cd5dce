from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loaded_run import loaded
from one_line import one_line
from own_layers import MaxPooling
from safetensors.torch import load_file, save_file

from gnnscale.core.errors import ConfigError
from gnnscale.data import from_arrays
from gnnscale.graph import Graph
from gnnscale.inference.export.dgl_modules import DGL
from gnnscale.inference.export.pyg_modules import PYG
from gnnscale.inference.export.weights import ExportConfig, export, export_model
from gnnscale.inference.layerwise import LayerwiseInference
from gnnscale.inference.load_run import load_run
from gnnscale.nn import APPNP, GAT, GCN, GIN, SGC, GATv2, GraphSAGE, ModelConfig
from gnnscale.nn.scatter_gather import Custom

Trained = Callable[..., Path]
EACH_MODEL = pytest.mark.parametrize("model", ["gcn", "sage", "gat", "gin"])


def edges(graph: Graph) -> tuple[torch.Tensor, torch.Tensor]:
    dst = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    return torch.from_numpy(graph.indices.astype(np.int64)), torch.from_numpy(dst)


def dgl_graph(dgl: Any, graph: Graph) -> Any:
    found = dgl.graph(edges(graph), num_nodes=graph.num_vertices)
    found.ndata["feat"] = torch.from_numpy(np.array(graph.features))
    return found


def ran(snippet: str, **given: Any) -> torch.Tensor:
    """The logits of a program that was printed."""
    with torch.no_grad():
        exec(snippet, given)
    return given["logits"]


def expected(run: Path) -> tuple[Graph, torch.Tensor]:
    graph, model = loaded(run)
    return graph, LayerwiseInference(model, graph, num_threads=1).logits()


@EACH_MODEL
@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
@pytest.mark.parametrize("library", ["pyg", "dgl"])
def test_same_logits(trained: Trained, tmp_path: Path, model: str, norm: str, library: str) -> None:
    module = pytest.importorskip("torch_geometric" if library == "pyg" else "dgl")
    run = trained(f"model={model}", f"model.norm={norm}")
    done = export(ExportConfig(run=run, format=library, out=tmp_path / "m.safetensors"))
    graph, logits = expected(run)
    x = torch.from_numpy(np.array(graph.features))
    pyg = {"x": x, "edge_index": torch.stack(edges(graph))}
    found = ran(done.snippet, **pyg if library == "pyg" else {"graph": dgl_graph(module, graph)})
    torch.testing.assert_close(found, logits, rtol=1e-5, atol=1e-5)


MORE = [
    *("model=gatv2", "model=gatv2 model.share_weights=true model.norm=batch"),
    *("model=sage model.aggregator=pool", "model=appnp model.alpha=0.3"),
    *("model=gcn model.jumping=cat model.norm=batch", "model=gat model.jumping=max"),
    "model=gin model.jumping=cat model.norm=layer",
    "model=gatv2 model.jumping=max model.residual=true",
    "model=sage model.aggregator=pool model.jumping=cat model.residual=true model.norm=batch",
]


def inputs(library: str, graph: Graph) -> dict[str, Any]:
    """What a program of a library that is installed is given."""
    module = pytest.importorskip("torch_geometric" if library == "pyg" else "dgl")
    if library == "dgl":
        return {"graph": dgl_graph(module, graph)}
    x = torch.from_numpy(np.array(graph.features))
    return {"x": x, "edge_index": torch.stack(edges(graph))}


EACH_LIBRARY = pytest.mark.parametrize("library", ["pyg", "dgl"])


@EACH_LIBRARY
@pytest.mark.parametrize("options", MORE)
def test_same_logits_of_more_models(trained, tmp_path, options, library) -> None:
    run = trained(*options.split())
    graph, logits = expected(run)
    given = inputs(library, graph)
    done = export(ExportConfig(run=run, format=library, out=tmp_path / "m.safetensors"))
    torch.testing.assert_close(ran(done.snippet, **given), logits, rtol=1e-5, atol=1e-5)


@EACH_LIBRARY
@pytest.mark.parametrize("num_layers", [1, 3])
def test_same_logits_of_hops(trained, tmp_path, num_layers, library) -> None:
    run = trained()
    graph, _ = loaded(run)
    config = SGC(num_layers=num_layers)
    model = config.build(num_features=graph.num_features, num_classes=4)
    for each in model.parameters():
        torch.nn.init.normal_(each)
    written = ExportConfig(run=run, format=library, out=tmp_path / "m.safetensors")
    done = export_model(written, config, model, weighted=False)
    found = ran(done.snippet, **inputs(library, graph))
    logits = LayerwiseInference(model, graph, num_threads=1).logits()
    torch.testing.assert_close(found, logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("config", [GAT, GATv2])
def test_what_dgl_has_no_counterpart_of(config: Callable[..., ModelConfig]) -> None:
    """Its attention over features of edges sends them, too; and that of GATv2 reads none."""
    given = config(hidden=8)
    model = given.build(num_features=5, num_classes=3, num_edge_features=2)
    with one_line(
        f"format=dgl: layers of {given.name} that read features of edges have no counterpart "
        "there; format=pyg and format=safetensors write them"
    ):
        DGL.weights(given, model)  # type: ignore[arg-type]


def test_layers_of_your_own_have_no_counterpart() -> None:
    given = Custom(functions=MaxPooling, hidden=8)
    model = given.build(num_features=5, num_classes=3)
    for peer in (PYG, DGL):
        with one_line(
            f"format={peer.name}: layers of {given.name} have no counterpart there; GCN, ",
            "format=safetensors writes any",
        ):
            peer.weights(given, model)  # type: ignore[arg-type]


def directed_with_loops() -> Graph:
    """Edges without their reverse, loops, an edge that repeats, and a vertex without any."""
    src, dst = np.array([[1, 0], [2, 0], [3, 1], [0, 2], [3, 2], [3, 2], [4, 4], [1, 1]]).T
    features = np.random.default_rng(0).standard_normal((6, 5), np.float32)
    return from_arrays((src, dst), features, np.arange(6) % 3, num_classes=3)


@pytest.mark.parametrize(
    "config",
    [
        *(GCN, GraphSAGE, GAT, GIN, GATv2, APPNP, SGC, partial(GATv2, share_weights=True)),
        partial(GraphSAGE, aggregator="pool"),
    ],
)
def test_directed_graphs_with_loops(config: Callable[..., ModelConfig], tmp_path: Path) -> None:
    dgl = pytest.importorskip("dgl")
    utils = pytest.importorskip("torch_geometric.utils")
    # As many classes as hidden features, which no module may mistake for each other.
    graph, given = directed_with_loops(), config(hidden=8, num_layers=3)
    model = given.build(num_features=5, num_classes=8).eval()
    for each in model.parameters():
        torch.nn.init.normal_(each)
    logits = LayerwiseInference(model, graph, num_threads=1).logits()
    file = tmp_path / "m.safetensors"
    save_file(DGL.weights(given, model), file)
    found = ran(DGL.snippet(given, model.widths, file), graph=dgl_graph(dgl, graph))
    torch.testing.assert_close(found, logits, rtol=1e-4, atol=1e-4)
    save_file(PYG.weights(given, model), file)
    snippet, edge_index = PYG.snippet(given, model.widths, file), torch.stack(edges(graph))
    if "add_self_loops=False" in PYG.note(given, 0, False):
        snippet = snippet.replace("dropout=", "add_self_loops=False, dropout=")
        for option in ("alpha=", "K=3)"):
            snippet = snippet.replace(option, f"add_self_loops=False, {option}")
        edge_index = utils.add_self_loops(edge_index, num_nodes=len(graph.features))[0]
    found = ran(snippet, x=torch.from_numpy(graph.features), edge_index=edge_index)
    torch.testing.assert_close(found, logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [{}, {"residual": True, "jumping": "cat"}])
@pytest.mark.parametrize("config", [GAT, GATv2, GIN])
def test_layers_that_read_features_of_edges(config: Any, options: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    generator = np.random.default_rng(0)
    src, dst = np.array([[1, 0], [2, 0], [3, 1], [0, 2], [3, 2], [3, 2], [4, 0]]).T
    rows = generator.standard_normal((6, 5), np.float32)
    attr = generator.standard_normal((7, 3), np.float32)
    graph = from_arrays((src, dst), rows, np.arange(6) % 3, num_classes=3, edge_features=attr)
    given = config(hidden=8, num_layers=3, **options)
    model = given.build(num_features=5, num_classes=3, num_edge_features=3).eval()
    for each in model.parameters():
        torch.nn.init.normal_(each)
    logits = LayerwiseInference(model, graph, num_threads=1).logits()
    out = tmp_path / "m.safetensors"
    done = export_model(
        ExportConfig(run=tmp_path, format="pyg", out=out), given, model, weighted=False
    )
    assert f"edge_dim={3}" in done.snippet
    tensors = {"x": torch.from_numpy(rows), "edge_attr": torch.from_numpy(attr)}
    found = ran(done.snippet, edge_index=torch.from_numpy(np.stack([src, dst])), **tensors)
    torch.testing.assert_close(found, logits, rtol=1e-4, atol=1e-4)
    own = export_model(
        ExportConfig(run=tmp_path, out=tmp_path / "own.safetensors"), given, model, weighted=False
    )
    program: dict[str, Any] = {}
    exec(own.snippet, program)
    assert program["model"].uses_edge_features
    if config is not GIN:
        return
    dgl = pytest.importorskip("dgl")
    to_dgl = ExportConfig(run=tmp_path, format="dgl", out=tmp_path / "d.safetensors")
    done = export_model(to_dgl, given, model, weighted=False)
    same = dgl.graph((src, dst), num_nodes=6)
    same.ndata["feat"], same.edata["feat"] = tensors["x"], tensors["edge_attr"]
    torch.testing.assert_close(ran(done.snippet, graph=same), logits, rtol=1e-4, atol=1e-4)


def test_dgls_own_normalisation_where_edges_go_both_ways(trained: Trained, tmp_path: Path) -> None:
    dgl = pytest.importorskip("dgl")
    run = trained("model=gcn")
    done = export(ExportConfig(run=run, format="dgl", out=tmp_path / "m.safetensors"))
    assert "GraphConv(a, b), whose norm is both" in done.note
    graph, model = loaded(run)
    src, dst = (each.numpy() for each in edges(graph))
    both = np.unique(np.concatenate([[src, dst], [dst, src]], axis=1), axis=1)
    graph = from_arrays((both[0], both[1]), graph.features, graph.labels, num_classes=4)
    logits = LayerwiseInference(model, graph, num_threads=1).logits()
    snippet = done.snippet.replace(', norm="none"', "").replace(", edge_weight=weight", "")
    found = ran(snippet, graph=dgl_graph(dgl, graph))
    torch.testing.assert_close(found, logits, rtol=1e-5, atol=1e-5)


@EACH_MODEL
def test_our_own_names(trained: Trained, model: str) -> None:
    run = trained(f"model={model}")
    done = export(ExportConfig(run=run, force=True))
    assert done.file == run / "model.safetensors"
    _, best = loaded(run)
    given: dict[str, Any] = {}
    exec(done.snippet, given)
    for name, each in best.state_dict().items():
        assert torch.equal(given["model"].state_dict()[name], each)
    assert set(load_file(done.file)) == set(best.state_dict())
    # A run directory with it is still one.
    load_run(run)


def test_what_is_refused(trained: Trained, tmp_path: Path) -> None:
    run, file = trained(), tmp_path / "m.safetensors"
    file.touch()
    for options, message in (
        ({"out": tmp_path / "m.pt"}, r"m\.pt: expected a name that ends in \.safetensors"),
        ({"out": file}, "exists, force=true overwrites it"),
        ({"out": tmp_path / "none" / file.name}, "no such folder"),
        ({"out": file, "format": "onnx"}, "format=onnx: allowed are safetensors, pyg, dgl"),
    ):
        with pytest.raises(ConfigError, match=message):
            export(ExportConfig(run=run, **options))
    with pytest.raises(ConfigError, match="expected a run directory"):
        export(ExportConfig(run=tmp_path, out=tmp_path / "new.safetensors"))
    assert not file.read_bytes()
