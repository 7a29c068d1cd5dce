"""What decides how a partition comes out, and so where it is kept and whether it can be used."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core.hardware import home
from gnnscale.core.progress import track
from gnnscale.dataset.storage.identity import store_place
from gnnscale.graph import Graph
from gnnscale.partition.partitioner import PartitionerConfig
from gnnscale.sampler.seed_order import labelled_vertices

__all__ = [
    "FORMAT_VERSION",
    "Divided",
    "Identity",
    "describe",
    "identify",
    "partition_place",
    "place_in_home",
    "plain",
]

FORMAT_VERSION = 1

_MAX_NAME = 100
_SLICE_ENTRIES = 1 << 20
#: Options that do not change what a partitioner does, or stand elsewhere.
_APART = ("num_parts", "store")


@dataclass(frozen=True, kw_only=True)
class Divided:
    """The graph that a partition is of.

    Attributes:
        name: what reports call it.
        num_vertices: number of vertices.
        num_edges: number of directed edges.
        num_train: training vertices with a label.
        content: hash of what it holds.
    """

    name: str
    num_vertices: int
    num_edges: int
    num_train: int
    content: str


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What decides how a partition comes out.

    Attributes:
        graph: what is divided.
        algorithm: the partitioner's name.
        options: its options, plain values.
        num_parts: number of parts, K.
        num_hops: layers of the model, L; None where they play no part.
    """

    graph: Divided
    algorithm: str
    options: dict[str, Any]
    num_parts: int
    num_hops: int | None


def identify(config: PartitionerConfig, graph: Graph, *, num_parts: int, num_hops: int) -> Identity:
    """Return the identity of a partition of ``graph`` by ``config``; see ``describe``."""
    names = (field.name for field in fields(config))
    return Identity(
        graph=describe(graph),
        algorithm=config.algorithm,
        options={name: plain(getattr(config, name)) for name in names if name not in _APART},
        num_parts=num_parts,
        num_hops=num_hops if config.depends_on_hops else None,
    )


def describe(graph: Graph) -> Divided:
    """Return what tells ``graph`` apart from others.

    A graph in memory has no hash of its content yet: its topology and training vertices are read.
    """
    train = labelled_vertices(graph, "train")
    return Divided(
        name=graph.name,
        num_vertices=graph.num_vertices,
        num_edges=graph.num_edges,
        num_train=len(train),
        content=graph.content or _hashed(graph, train),
    )


def partition_place(config: PartitionerConfig, identity: Identity) -> Path:
    """Return the directory of a partition."""
    if config.store is not None:
        return store_place(config.store, option="partitioner.store")
    said = {"format": FORMAT_VERSION, **asdict(identity)}
    return place_in_home("partitions", identity.graph.name, identity.algorithm, said)


def place_in_home(folder: str, graph: str, kind: str, said: Mapping[str, Any]) -> Path:
    """Return the directory of something made of a graph, where the user names none.

    Args:
        folder: below ``GNNSCALE_HOME``, of all that is made alike.
        graph: its name.
        kind: how it is made, in a word.
        said: plain values that tell it apart from others.
    """
    digest = hashlib.blake2b(json.dumps(said, sort_keys=True).encode(), digest_size=4)
    # A graph's name may hold anything that can be printed.
    name = re.sub(r"[^A-Za-z0-9._+-]", "_", graph)[:_MAX_NAME].lstrip(".")
    return home() / folder / f"{name}-{kind}-{digest.hexdigest()}"


def plain(value: Any) -> Any:
    """Return options as JSON would give them back; those within others say their class."""
    if is_dataclass(value) and not isinstance(value, type):
        inner = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        return {"_target_": f"{type(value).__module__}.{type(value).__qualname__}", **inner}
    return json.loads(json.dumps(value))


def _hashed(graph: Graph, train: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    sizes = [graph.num_vertices, graph.num_edges, graph.num_features, len(train)]
    digest.update(json.dumps(sizes).encode())
    arrays = (graph.indptr, graph.indices, train)
    with track(f"hashing {graph.name}", sum(map(len, arrays)), "entries") as advance:
        for array in arrays:
            for first in range(0, len(array), _SLICE_ENTRIES):
                part = np.ascontiguousarray(array[first : first + _SLICE_ENTRIES], np.int64)
                digest.update(part.data)
                advance(len(part))
    return digest.hexdigest()
