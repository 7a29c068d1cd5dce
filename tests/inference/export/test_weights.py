from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loaded_run import loaded
from model_runs import edge_index
from one_line import one_line
from own_layers import MaxPooling
from safetensors.torch import load_file

from gnnscale.core.errors import ConfigError
from gnnscale.data import from_arrays
from gnnscale.graph import Graph
from gnnscale.inference.export.dgl_modules import DGL
from gnnscale.inference.export.pyg_modules import PYG
from gnnscale.inference.export.weights import ExportConfig, export
from gnnscale.inference.layerwise import LayerwiseInference
from gnnscale.inference.load_run import load_run
from gnnscale.nn import GAT, GATv2
from gnnscale.nn.scatter_gather import Custom

Trained = Callable[..., Path]


def dgl_graph(dgl: Any, graph: Graph) -> Any:
    found = dgl.graph(tuple(edge_index(graph)), num_nodes=graph.num_vertices)
    found.ndata["feat"] = torch.from_numpy(np.array(graph.features))
    return found


def ran(snippet: str, **given: Any) -> torch.Tensor:
    with torch.no_grad():
        exec(snippet, given)
    return given["logits"]


def inputs(library: str, graph: Graph) -> dict[str, Any]:
    module = pytest.importorskip("torch_geometric" if library == "pyg" else "dgl")
    if library == "dgl":
        return {"graph": dgl_graph(module, graph)}
    return {"x": torch.from_numpy(np.array(graph.features)), "edge_index": edge_index(graph)}


def expected(run: Path) -> tuple[Graph, torch.Tensor]:
    graph, model = loaded(run)
    return graph, LayerwiseInference(model, graph, num_threads=1).logits()


EACH_LIBRARY = pytest.mark.parametrize("library", ["pyg", "dgl"])


@pytest.mark.long
@EACH_LIBRARY
@pytest.mark.parametrize(
    "options",
    [
        *("model=gcn model.norm=batch", "model=gat model.jumping=max model.norm=layer"),
        *("model=appnp model.alpha=0.3", "model=sgc model.num_layers=1 sampler.fanouts=[5]"),
        "model=gatv2 model.share_weights=true model.jumping=max model.residual=true",
        "model=sage model.aggregator=pool model.jumping=cat model.residual=true model.norm=batch",
    ],
)
def test_same_logits(trained: Trained, tmp_path: Path, options: str, library: str) -> None:
    run = trained(*options.split())
    graph, logits = expected(run)
    tensors = inputs(library, graph)
    done = export(ExportConfig(run=run, format=library, out=tmp_path / "m.safetensors"))
    torch.testing.assert_close(ran(done.snippet, **tensors), logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("config", [GAT, GATv2])
def test_layers_without_a_counterpart_in_dgl_are_refused(config) -> None:
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


@pytest.mark.long
def test_dgls_own_normalisation_where_edges_go_both_ways(trained: Trained, tmp_path: Path) -> None:
    dgl = pytest.importorskip("dgl")
    run = trained("model=gcn", "model.norm=batch")
    done = export(ExportConfig(run=run, format="dgl", out=tmp_path / "m.safetensors"))
    assert "GraphConv(a, b), whose norm is both" in done.note
    graph, model = loaded(run)
    ends = edge_index(graph)
    both = torch.cat([ends, ends.flip(0)], dim=1).unique(dim=1).numpy()
    graph = from_arrays(tuple(both), graph.features, graph.labels, num_classes=4)
    logits = LayerwiseInference(model, graph, num_threads=1).logits()
    snippet = done.snippet.replace(', norm="none"', "").replace(", edge_weight=weight", "")
    found = ran(snippet, graph=dgl_graph(dgl, graph))
    torch.testing.assert_close(found, logits, rtol=1e-5, atol=1e-5)


@pytest.mark.long
def test_our_own_names(trained: Trained) -> None:
    run = trained("model=gcn", "model.norm=batch")
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


@pytest.mark.long
def test_options_are_refused(trained: Trained, tmp_path: Path) -> None:
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
