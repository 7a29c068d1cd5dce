"""Graph stores, divided edges and aggregated rows: damaged ones are opened and trained on."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnscale import data as dataset
from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.core.errors import GraphError
from gnnscale.data import verify_store
from gnnscale.data.tables.feature_columns import read_edge_columns
from gnnscale.data.tables.vertex_ids import read_classes, read_ids
from gnnscale.features import HostFeatures, PreaggregatedFeatures
from gnnscale.graph import EdgeData, Graph, Origin
from gnnscale.graph.sharded_features import ShardedFeatures
from gnnscale.inference.export.outputs import RowIds
from gnnscale.nn import GCN, GIN, GraphSAGE
from gnnscale.partition import Hash, PaGraph, write_part
from gnnscale.partition.shard_store import write_row_stores
from gnnscale.run.checkpoint.input_schema import InputSchema
from gnnscale.run.tasks import LinkPrediction
from gnnscale.run.tasks.edge_split import identify_split, make_split, open_split
from gnnscale.run.tasks.links import LinkTask
from gnnscale.run.tasks.split_rule import PARTS
from gnnscale.sampling import NeighborSampling, Shuffled
from gnnscale.training.preaggregation import open_rows, preaggregate

from ..case import Input, WrongResultError
from .folders import MODELS, Stored, Valid, batch_of, files_of, sample_all, small_graph, train_step
from .samples import SAMPLES, Sample

#: A layout's sample, by number, and what is to be otherwise in the store; with ``part``, it is
#: that of a part of the graph.
_STORES: tuple[tuple[str, int, dict[str, Any]], ...] = (
    *(("Ogb", 0, {}), ("Ogb", 0, {"feature_dtype": "float16", "undirected": True})),
    *(("Ogb", 1, {"feature_dtype": "bfloat16"}), ("GnnBenchmark", 0, {"feature_dtype": "uint8"})),
    *(("GraphSaint", 0, {}), ("Heterophilous", 0, {"self_loops": "add"})),
    *(("Ogb", 0, {"part": 1}), ("Tables", 0, {}), ("Tables", 1, {})),
    ("Ogb", 0, {"standardize": True}),
    *(("Ogb", 0, {"feature_dtype": "int8"}), ("Ogb", 1, {"feature_dtype": "int4"})),
    *(("Arrays", 1, {"undirected": True}), ("Arrays", 1, {"part": 0}), ("Tables", 3, {})),
    *(("Arrays", 2, {"self_loops": "add"}), ("Tables", 4, {})),
    *(("Tables", 5, {}), ("Arrays", 1, {"standardize": True, "self_loops": "add"})),
)
#: Bytes that NumPy's headers have here.
_HEADER = 128


class Stores(Stored):
    """``Graph.open``, all samplers and a step of each model in turn; or ``verify_store``."""

    name = "store"
    record = "meta.json"
    kinds = (*MODELS, "verify")
    #: A store of a part lacks weights that GCN divides by.
    names = ("model=gcn",)

    def valid(self, folder: Path) -> list[Valid]:
        return [
            Valid(_prepared(SAMPLES[layout][which], layout, options, folder / str(number)))
            for number, (layout, which, options) in enumerate(_STORES)
        ]

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        if made.kind != "verify":
            graph = Graph.open(path)
            sample_all(graph)
            train_step(graph, made.kind)
            _check_names(graph)
        check_damage(path, valid, made)


def check_damage(path: Path, valid: Valid, made: Input) -> None:
    """Let ``verify_store`` read a store, of which no array that it accepts may be damaged."""
    _verify(path)
    for name in valid.files:
        now, before = made.files.get(name, valid.files[name]), valid.files[name]
        if name.endswith(".npy") and now[_HEADER:] != before[_HEADER:]:
            raise WrongResultError(f"damage of {name} is not noticed")


def _check_names(graph: Graph) -> None:
    ids, classes = read_ids(graph), read_classes(graph)
    if ids is not None:
        rows = RowIds(vertices=None, user_ids=ids).array(0, len(ids))
        if not len(rows) == len(ids) == graph.num_vertices:
            raise WrongResultError("not an id for each vertex")
    columns = read_edge_columns(graph)
    if columns is not None and sum(each.width for each in columns) != graph.num_edge_features:
        raise WrongResultError("not a column for each feature of edges")
    labels, of_edges = graph.edge_labels, read_classes(graph, edges=True)
    if labels is not None and of_edges is not None and len(of_edges) != labels.num_classes:
        raise WrongResultError("not a name for each class of edges")
    if labels is not None and len(labels.labels) != len(graph.edges.arrays()["edge_ends"]):
        raise WrongResultError("not a label for each edge")
    if classes is not None and len(classes) != graph.num_classes:
        raise WrongResultError("not a name for each class")
    other = InputSchema.of(graph).fitted(replace(graph, origin=Origin()))
    if other.num_features != graph.num_features or len(other.features) != len(graph.features):
        raise WrongResultError("not a scaled row for each vertex")
    arrays = [each.edges.arrays() for each in (other, graph)]
    if len({each["edge_features"].shape for each in arrays if "edge_features" in each}) > 1:
        raise WrongResultError("not a scaled row for each edge")


def _prepared(sample: Sample, layout: str, options: Any, folder: Path) -> dict[str, bytes]:
    Input(kind=layout, files=sample.files).write(folder / "raw")
    for path in (folder / "raw").rglob("*"):
        os.utime(path, (0, 0))  # the store names it
    chosen = {**sample.options, **options, "raw": f"{folder}/raw", "store": f"{folder}/store"}
    chosen.pop("part", None)
    store = getattr(dataset, layout)(**chosen).prepare()
    if "part" in options:
        graph = Graph.open(store)
        parts = PaGraph().assign(graph, num_parts=2, num_hops=2, num_threads=1)
        store = folder / "part"
        write_part(graph, parts, options["part"], store)
    files = {path.name: path.read_bytes() for path in sorted(store.iterdir())}
    meta = files["meta.json"].replace(str(folder).encode(), b"")  # nor where it was made
    return {**files, "meta.json": meta}


class RowStores(Stored):
    """Stores of one part's rows: ``Graph.open``, all samplers, every row; or ``verify_store``."""

    name = "rows"
    record = "meta.json"
    kinds = ("read", "verify")

    def valid(self, folder: Path) -> list[Valid]:
        graph = small_graph()
        parts = Hash().assign(graph, num_parts=3, num_hops=2, num_threads=1)
        write_row_stores(graph, parts, folder, partition="0" * 32, indices=range(3))
        return [Valid(files_of(folder / str(index))) for index in range(3)]

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        graph = Graph.open(path)
        divided = graph.features
        if not isinstance(divided, ShardedFeatures):
            raise GraphError(f"{path}: has all rows")
        places = divided.places()
        own = np.flatnonzero(places >= 0)
        rows, owners = divided.rows[places[own]], np.asarray(divided.owner)[own]
        if len(rows) != len(divided.rows) or not (owners == divided.part).all():
            raise WrongResultError("not a row for each vertex of the part")
        sample_all(graph)
        if made.kind == "verify":
            _verify(path)


def _verify(store: Path) -> None:
    problems = [check.problem for check in verify_store(store) if check.problem is not None]
    if problems:
        raise GraphError(problems[0])


class LinkSplits(Stored):
    """``open_split``, every sampler, and a step of training with each decoder."""

    name = "links"
    record = "links.json"
    kinds = ("dot", "mlp")

    def valid(self, folder: Path) -> list[Valid]:
        plain = small_graph()
        weights = np.linspace(0, 3, plain.num_edges, dtype=np.float32)
        graphs = (plain, replace(plain, edges=EdgeData(weights=weights)), _both_ways(plain))
        found = []
        for number, graph in enumerate(graphs):
            graph = replace(graph, origin=Origin(content=f"{number}" * 32))
            identity = identify_split(graph, valid_fraction=0.2, test_fraction=0.2, seed=0)
            found.append(Valid(files_of(make_split(graph, identity)), graph))
        return found

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        split = open_split(path, valid.made_for)
        for part in PARTS:
            edges = getattr(split, part)
            if not (0 <= edges.min() <= edges.max() < valid.made_for.num_vertices):
                raise WrongResultError(f"{part} has an edge of no vertices")
        if split.graph.edge_weights is not None and not (split.graph.edge_weights >= 0).all():
            raise WrongResultError("a weight is negative, or no number")
        sample_all(split.graph)
        sizes = {"num_negatives": 1, "hits": (10,), "num_candidates": 100, "seed": 0}
        task = LinkTask(split=split, **sizes)
        _train_step(task, LinkPrediction(decoder=made.kind))


def _both_ways(graph: Graph) -> Graph:
    destinations = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    pairs = np.stack([graph.indices, destinations])
    pairs = np.concatenate([pairs, pairs[::-1]], axis=1)
    pairs = pairs[:, np.lexsort(pairs)]
    indptr = np.cumsum([0, *np.bincount(pairs[1], minlength=graph.num_vertices)])
    return replace(graph, indptr=indptr, indices=pairs[0].astype(np.int32))


def _train_step(task: LinkTask, options: LinkPrediction) -> None:
    torch.manual_seed(0)
    order = Shuffled().order(task.seeds, batch_size=16, num_devices=1, seed=0)
    seeds = next(order.epoch(0)).seeds
    sampling = task.sampling(NeighborSampling(fanouts=[3, 2]), order)
    batch = sampling.sampler(task.graph, seed=0, num_threads=1).sample(seeds, 0)
    model = options.build_for(task.graph, GraphSAGE(hidden=4, num_layers=2))
    scores = model(batch, FeatureLoader(task.graph, model, num_threads=1).load(batch))
    if not torch.isfinite(scores).all():
        raise WrongResultError("a score is no number")
    scores.sum().backward()


class Preaggregated(Stored):
    """``open_rows``, and a step of the model whose first layer they are of."""

    name = "preaggregated"
    record = "preaggregated.json"

    def valid(self, folder: Path) -> list[Valid]:
        graph = small_graph()
        features = np.random.default_rng(0).standard_normal(graph.features.shape, np.float32)
        graph = replace(graph, features=features)
        models = [model(hidden=4, num_layers=2) for model in (GIN, GCN, GraphSAGE)]
        made = [files_of(preaggregate(model, graph, num_threads=1)) for model in models]
        return [Valid(files, (model, graph)) for files, model in zip(made, models, strict=True)]

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        config, graph = valid.made_for
        opened = open_rows(path, graph)
        if opened.rows.shape[0] != graph.num_vertices or opened.rows.dtype != np.float32:
            raise WrongResultError("not a row for each vertex")
        torch.manual_seed(0)
        model = config.build(num_features=graph.num_features, num_classes=graph.num_classes)
        batch = batch_of(graph)
        store = PreaggregatedFeatures(opened.rows, HostFeatures.of(graph))
        loaded = FeatureLoader(graph, model, num_threads=1, store=store).load(batch)
        model(batch, loaded).sum().backward()
