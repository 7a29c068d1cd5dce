"""Graph stores: damaged ones are opened, sampled, and trained one step on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnscale import dataset
from gnnscale.core.errors import GraphError
from gnnscale.dataset import verify_store
from gnnscale.dataset.ids import read_classes, read_ids
from gnnscale.graph import Graph
from gnnscale.partition import PaGraph, write_part
from gnnscale.report.export.answers import RowIds

from ..case import Input
from ..verdict import WrongResultError
from .artefact import Valid
from .samples import SAMPLES, Sample
from .stored import Stored
from .training import MODELS, sample_all, train_step

__all__ = ["Stores"]

#: A layout's sample, by number, and what is to be otherwise in the store; with ``part``, it is
#: that of a part of the graph.
_STORES: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("Ogb", 0, {}),
    ("Ogb", 0, {"feature_dtype": "float16", "undirected": True}),
    ("Ogb", 1, {"feature_dtype": "bfloat16"}),
    ("GnnBenchmark", 0, {"feature_dtype": "uint8"}),
    ("GraphSaint", 0, {}),
    ("Heterophilous", 0, {"self_loops": "add"}),
    ("Ogb", 0, {"part": 1}),
    ("Tables", 0, {}),
    ("Tables", 1, {}),
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
        """Prepare stores of several layouts."""
        return [
            Valid(_prepared(SAMPLES[layout][which], layout, options, folder / str(number)))
            for number, (layout, which, options) in enumerate(_STORES)
        ]

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        """Open, sample and train, then verify; or verify alone."""
        if made.kind != "verify":
            graph = Graph.open(path)
            sample_all(graph)
            train_step(graph, made.kind)
            _check_names(graph)
        _verify(path, {**valid.files, **made.files}, valid.files)


def _check_names(graph: Graph) -> None:
    """Read the ids of the user's and the names of classes, as predictions have them.

    Raises:
        WrongResultError: they are not those of all vertices and classes.
    """
    ids, classes = read_ids(graph), read_classes(graph)
    if ids is not None and len(RowIds(vertices=None, own=ids).array(0, len(ids))) != len(ids):
        raise WrongResultError("not an id for each vertex")
    if ids is not None and len(ids) != graph.num_vertices:
        raise WrongResultError("not an id for each vertex")
    if classes is not None and len(classes) != graph.num_classes:
        raise WrongResultError("not a name for each class")


def _verify(store: Path, files: Mapping[str, bytes], valid: Mapping[str, bytes]) -> None:
    """Verify a store.

    Raises:
        GraphError: it is damaged.
        WrongResultError: it is, and that was not noticed.
    """
    problems = [check.problem for check in verify_store(store) if check.problem is not None]
    if problems:
        raise GraphError(problems[0])
    for name in valid:
        if name.endswith(".npy") and files[name][_HEADER:] != valid[name][_HEADER:]:
            raise WrongResultError(f"damage of {name} is not noticed")


def _prepared(
    sample: Sample, layout: str, options: Mapping[str, Any], folder: Path
) -> dict[str, bytes]:
    Input(kind=layout, files=sample.files).write(folder / "raw")
    for path in (folder / "raw").rglob("*"):
        os.utime(path, (0, 0))  # the store names it
    changes = {name: value for name, value in options.items() if name != "part"}
    reader = getattr(dataset, layout)(
        raw=str(folder / "raw"), store=str(folder / "store"), **{**sample.options, **changes}
    )
    store = reader.prepare()
    if "part" in options:
        graph = Graph.open(store)
        parts = PaGraph().assign(graph, num_parts=2, num_hops=2, num_threads=1)
        store = folder / "part"
        write_part(graph, parts, options["part"], store)
    files = {path.name: path.read_bytes() for path in sorted(store.iterdir())}
    meta = files["meta.json"].replace(str(folder).encode(), b"")  # nor where it was made
    return {**files, "meta.json": meta}
