"""Stores that have the rows of one part beside the whole topology: damaged ones are opened."""

from pathlib import Path

import numpy as np

from gnnscale.core.errors import GraphError
from gnnscale.data import verify_store
from gnnscale.graph import Graph
from gnnscale.graph.graph import ShardedFeatures
from gnnscale.partition import Hash
from gnnscale.partition.shard_store import write_row_stores

from ..case import Input, WrongResultError
from .folders import Stored, Valid, files_of, sample_all, small_graph

_NUM_VERTICES, _NUM_EDGES = 60, 300


class RowStores(Stored):
    """``Graph.open``, all samplers, and every row of the part; or ``verify_store``."""

    name = "rows"
    record = "meta.json"
    kinds = ("read", "verify")

    def valid(self, folder: Path) -> list[Valid]:
        graph = small_graph(_NUM_VERTICES, _NUM_EDGES)
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
        rows = divided.rows[places[own]]
        if (
            len(rows) != len(divided.rows)
            or not (np.asarray(divided.owner)[own] == divided.part).all()
        ):
            raise WrongResultError("not a row for each vertex of the part")
        sample_all(graph)
        if made.kind == "verify":
            problems = [each.problem for each in verify_store(path) if each.problem is not None]
            if problems:
                raise GraphError(problems[0])
