"""Stores of graphs with types: damaged ones are opened, sampled and trained on."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnscale.backend.typed_loading import TypedLoader
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.graph import Graph
from gnnscale.inference.typed_layerwise import TypedInference
from gnnscale.nn.base import seed_loss
from gnnscale.nn.typed_options import HGT, RGAT, RGCN, RSAGE, TypedModel
from gnnscale.run.checkpoint.input_schema import InputSchema
from gnnscale.run.typed_inputs import read_by_type
from gnnscale.sampling import TypedSampler

from ..case import Input, Keep, WrongResultError
from .folders import Stored, Valid, files_of
from .graphs import check_damage
from .readers import Readers
from .samples import TYPED_SAMPLES

_MODELS: dict[str, TypedModel] = {
    "rgcn": RGCN(hidden=4, num_bases=2),
    "rsage": RSAGE(hidden=4, without_features="degrees"),
    "rgat": RGAT(hidden=4, num_heads=2, without_features="constant"),
    "hgt": HGT(hidden=4, num_heads=2),
}


def _graph(*, weighted: bool, labeled: str) -> Graph:
    """Return a graph of three types, one without features, one without edges that end at it."""
    generator = np.random.default_rng(0)
    sizes = {"user": 12, "item": 9, "tag": 3}
    triples = [("user", "buys", "item"), ("item", "of", "user"), ("tag", "on", "item")]
    edges = {
        triple: tuple(generator.integers(0, sizes[triple[end]], 25) for end in (0, 2))
        for triple in triples
    }
    return from_typed_arrays(
        {
            "user": generator.normal(size=(12, 3)).astype(np.float16),
            "item": None,
            "tag": torch.ones(3, 2, dtype=torch.bfloat16),
        },
        edges,
        (labeled, np.arange(sizes[labeled]) % 3),
        num_vertices={"item": 9},
        edge_weights=dict.fromkeys(triples, np.ones(25)) if weighted else None,
        edge_features={
            triples[0]: generator.normal(size=(25, 2)),
            triples[2]: np.arange(25, dtype=np.float16),
        },
        split={"train": [0, 1, 2, 3], "valid": [4, 5], "test": [6, 7]},
        name="typed",
    )


class TypedStores(Stored):
    """``Graph.open``, samplers, a step of each model and exact inference; or ``verify_store``."""

    name = "typed_store"
    record = "meta.json"
    kinds = (*_MODELS, "verify")

    def valid(self, folder: Path) -> list[Valid]:
        stores = []
        for number, labeled in enumerate(("user", "item")):
            path = folder / f"store{number}"
            _graph(weighted=bool(number), labeled=labeled).save(path)
            stores.append(Valid(files_of(path)))
        return stores

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        if made.kind != "verify":
            graph = Graph.open(path)
            _sample(graph)
            _train(graph, _MODELS[made.kind])
        check_damage(path, valid, made)


#: Options that leave a table as it is, or read it in another way.
_CHOICES: dict[str, tuple[Any, ...]] = {
    "reverse": (True, False),
    "unknown_ids": ("vertices", "drop", "refuse"),
    "missing": ("mean", "drop", "refuse"),
    "standardize": (True, False),
    "weight": ("weight", None),
    "unlabelled": ("refuse", "drop"),
}


class TypedReaders(Readers):
    """``dataset=typed_tables``, ``heco`` and ``relational``: damaged files are read, trained on."""

    samples = TYPED_SAMPLES

    def __init__(self) -> None:
        super().__init__()
        self.name = "typed_readers"

    def make(self, key: str, number: int, keep: Keep = None) -> Input:
        made = super().make(key, number, keep)
        if made.kind == "TypedTables":
            return made
        if made.kind == "Heco":
            return replace(made, options={"name": "tiny", "labels_per_class": 20})
        allowed = ("name", "task", "missing", "standardize", "unlabelled", "unknown_ids")
        options = {name: value for name, value in made.options.items() if name in allowed}
        if options.get("unknown_ids") == "vertices":
            del options["unknown_ids"]
        return replace(made, options=options)

    def options(self, rng: random.Random) -> dict[str, Any]:
        names = rng.sample(sorted(_CHOICES), rng.choice((0, 0, 1, 2)))
        return {name: rng.choice(_CHOICES[name]) for name in names}

    def use(self, graph: Graph, number: int) -> None:
        if not len(graph.train_idx):
            return
        _sample(graph)
        _train(graph, list(_MODELS.values())[number % len(_MODELS)])


def _sample(graph: Graph) -> None:
    seeds = np.asarray(graph.train_idx)
    draws: tuple[Any, ...] = ("uniform", "labor_hop", "weight")
    for kind in draws if graph.edge_weights is not None else draws[:2]:
        batch = TypedSampler(graph, fanouts=[2, -1], draws=kind, num_threads=2).sample(seeds, 1)
        types = graph.schema.type_of(batch.input_vertices)
        if (np.bincount(types, minlength=len(batch.type_sizes)) != batch.type_sizes).any():
            raise WrongResultError(f"{kind} drew a vertex of another type")


def _train(graph: Graph, options: TypedModel) -> None:
    graph = read_by_type(options, graph, seed=0)
    graph = InputSchema.of(graph).fitted(graph)
    types = graph.input_types
    assert types is not None
    torch.manual_seed(0)
    model: Any = options.build_typed(
        schema=types.schema,
        widths=tuple(types.widths.values()),
        num_classes=graph.num_classes,
        edge_widths=types.edge_widths,
    )
    batch = TypedSampler(graph, fanouts=[3, 2]).sample(np.asarray(graph.train_idx), 0)
    table = types.widths  # rows that are learned come from the graph in place of a table
    loader = TypedLoader(graph, model, num_threads=1, store=None, aggregates=not types.learned)
    inputs = loader.load(batch)
    rows = [
        part if part.shape[1] else torch.zeros(len(part), width)
        for part, width in zip(inputs.rows, table.values(), strict=True)
    ]
    outputs = model(batch, type(inputs)(**vars(inputs) | {"rows": tuple(rows)}))
    seed_loss(graph, outputs, batch.seeds).backward()
    TypedInference(model, graph, num_threads=1).logits(np.asarray(graph.test_idx))
