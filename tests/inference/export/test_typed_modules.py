"""Exported programs of models over types against exact inference, by PyG's modules and ours."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from one_line import one_line
from typed_graphs import shop

from gnnscale import Graph, to_pyg
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.inference.export.weights import ExportConfig, ExportedWeights, export_model
from gnnscale.inference.typed_layerwise import TypedInference
from gnnscale.nn import HGT, RGAT, RGCN, RSAGE, TypedModel
from gnnscale.run.typed_inputs import read_by_type

MODELS: list[TypedModel] = [
    RSAGE(hidden=8, num_layers=2, residual=True, norm="batch"),
    RSAGE(hidden=8, num_layers=3, combine="mean", without_features="constant"),
    RGCN(hidden=8, num_layers=2, norm="layer"),
    RGCN(hidden=8, num_layers=3, num_bases=2, residual=True),
    RGAT(hidden=8, num_layers=2, num_heads=2),
    RGAT(hidden=8, num_layers=2, num_heads=2, edge_features=False),
    RGAT(hidden=8, num_layers=2, num_heads=2, combine="max"),
    RSAGE(hidden=8, num_layers=2, combine="max", aggregator="sum"),
    RSAGE(hidden=8, num_layers=2, encoder="normalized"),
    HGT(hidden=8, num_layers=2, num_heads=2, encoder="normalized"),
    HGT(hidden=8, num_layers=2, num_heads=2, norm="layer", residual=True),
]


def returned(tag: str = "a tag") -> Graph:
    """Users without features, items and tags, each with edges that end here."""
    generator = np.random.default_rng(3)
    ends = [generator.integers(0, sizes, (40, 2)).T for sizes in ((20, 12), (12, 5), (20, 20))]
    return from_typed_arrays(
        {
            "user": None,
            "item": generator.standard_normal((12, 4)).astype(np.float32),
            tag: generator.standard_normal((5, 3)).astype(np.float32),
        },
        {
            ("user", "buys", "item"): ends[0],
            ("item", "bought by", "user"): ends[0][::-1],
            ("item", "has", tag): ends[1],
            (tag, "of", "item"): ends[1][::-1],
            ("user", "knows", "user"): ends[2],
        },
        ("user", np.arange(20) % 3),
        num_vertices={"user": 20},
        split="random",
        edge_features={
            ("user", "buys", "item"): generator.standard_normal((40, 2)),
            (tag, "of", "item"): generator.standard_normal(40),
        },
    )


def exported(
    options: TypedModel, graph: Graph, file: Path, name: str
) -> tuple[ExportedWeights, Any]:
    """Return the export of a model of random weights, and the model."""
    types = graph.input_types
    assert types is not None
    torch.manual_seed(0)
    model = options.build_typed(
        schema=types.schema,
        widths=tuple(types.widths.values()),
        num_classes=3,
        edge_widths=types.edge_widths,
    ).eval()
    for key, value in model.state_dict(keep_vars=True).items():
        if value.is_floating_point():
            torch.nn.init.normal_(value, std=0.4)
        if key.endswith("running_var"):
            value.abs_()
    config = ExportConfig(run=file.parent, format=name, out=file, force=True)
    weighted = graph.edge_weights is not None
    return export_model(config, options, model, weighted=weighted, types=types), model


@pytest.mark.parametrize("options", MODELS, ids=lambda options: options.name)
@torch.no_grad()
def test_programs_have_the_logits_of_the_run(options: TypedModel, tmp_path: Path) -> None:
    graph = read_by_type(options, returned(), seed=1)
    done, model = exported(options, graph, tmp_path / "pyg.safetensors", "pyg")
    assert "of types without features" in done.note
    program: dict[str, Any] = {"data": to_pyg(graph)}
    exec(done.snippet, program)
    expected = TypedInference(model, graph, num_threads=1).logits(np.arange(20))
    torch.testing.assert_close(program["logits"], expected, rtol=1e-4, atol=1e-4)
    program = {}
    exec(exported(options, graph, tmp_path / "own.safetensors", "safetensors")[0].snippet, program)
    again = TypedInference(program["model"].eval(), graph, num_threads=1).logits(np.arange(20))
    assert torch.equal(again, expected)


def test_what_pyg_and_dgl_lack(tmp_path: Path) -> None:
    graph = read_by_type(MODELS[0], shop(30, 20), seed=1)
    with one_line("format=pyg: expected an edge type that ends at tag, as PyG's layers"):
        exported(MODELS[0], graph, tmp_path / "a.safetensors", "pyg")
    with one_line("format=dgl: layers of RSAGE have no counterpart there; format=pyg and"):
        exported(MODELS[0], graph, tmp_path / "a.safetensors", "dgl")
    graph = read_by_type(MODELS[-1], returned("a.tag"), seed=1)
    with one_line("format=pyg: expected vertex types without a dot", "got a.tag"):
        exported(MODELS[-1], graph, tmp_path / "a.safetensors", "pyg")
    ends = np.array([[0, 1], [1, 0]])
    edges = {("user", "knows", "user"): ends}
    rows = {"user": np.ones((2, 1), np.float32)}
    weighted = from_typed_arrays(rows, edges, edge_weights={("user", "knows", "user"): [1.0, 2.0]})
    with one_line("format=pyg: layers of RGCN that read weights of edges have no counterpart"):
        exported(MODELS[2], weighted, tmp_path / "a.safetensors", "pyg")
    exported(MODELS[4], weighted, tmp_path / "a.safetensors", "pyg")
