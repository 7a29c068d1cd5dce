"""Base class of datasets whose graphs have types of vertices and edges."""

import logging
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import GraphError
from gnnscale.data.base import DividedDataset, StoredDataset
from gnnscale.data.splits import RandomSplit
from gnnscale.data.storage.store_check import RawFile
from gnnscale.data.type_table import type_table
from gnnscale.graph import Graph, Split, store_format, store_writer
from gnnscale.graph.labels import labeled_vertices

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TypedStoredDataset(StoredDataset):
    """Base of the readers of graphs with types, which are made in memory.

    A reader implements ``raw_files`` and ``read_graph``. The store is as ``Graph.save`` writes it,
    with the records of the raw files, and is reused as that of any dataset.
    """

    @abstractmethod
    def read_graph(self) -> Graph:
        """Return the graph in memory, with its published split; each reader implements it."""

    def _write_graph(
        self, folder: Path, graph: Graph, records: Callable[[], list[RawFile]], **notes: Any
    ) -> None:
        """Write ``graph`` as the store's files; ``notes`` are further entries of ``meta.json``."""
        contents = graph.store_contents() | {
            "source": self.raw or type(self).__name__,
            "options": self._identity(),
            "raw": [asdict(record) for record in records()],
            **notes,
        }
        store_writer.fill_folder(folder, **contents)
        for line in type_table(graph):
            _LOG.info("%s: %s", self.name, line)


@dataclass(frozen=True, kw_only=True)
class TypedDataset(TypedStoredDataset, DividedDataset):
    """Base of the readers of graphs with types that a random draw may divide."""

    def _fill(self, folder: Path, records: Callable[[], list[RawFile]]) -> None:
        graph = replace(self.read_graph(), name=self.name)
        if self.split == "random":
            graph = with_random_parts(graph, self._random_split())
        self._write_graph(folder, graph, records)


def with_random_parts(graph: Graph, random: RandomSplit) -> Graph:
    """Return ``graph`` with a random split of the vertices of each labeled type.

    GraphError: no vertex has a label. ConfigError: a part is empty.
    """
    graphs = [graph.of_target(name) for name in graph.targets] or [graph]
    divided = []
    for of_type in graphs:
        vertices = labeled_vertices(of_type.labels, graph.schema)
        if vertices.start == vertices.stop:
            raise GraphError(f"{graph.name}: no vertex has a label")
        parts = random.divide(of_type.labels[vertices], of_type.origin.classes)
        divided.append([np.sort(part) + vertices.start for part in parts])
    dtype = store_format.vertex_dtype(graph.num_vertices)
    train, valid, test = (np.concatenate(part).astype(dtype) for part in zip(*divided, strict=True))
    return replace(graph, split=Split(train_idx=train, valid_idx=valid, test_idx=test))
