"""Datasets: published and generated graphs → graph store → Graph.

Graphs from other libraries' tensors need torch, which is imported when one of them is first made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnscale.core.lazy import lazy_names
from gnnscale.dataset.base import (
    Dataset,
    ExistingStore,
    GraphSource,
    random_edge_split,
    random_split,
)
from gnnscale.dataset.readers.arrays import Arrays
from gnnscale.dataset.readers.csr import Csr
from gnnscale.dataset.readers.gnn_benchmark import GnnBenchmark
from gnnscale.dataset.readers.graphsaint import GraphSaint
from gnnscale.dataset.readers.heterophilous import Heterophilous
from gnnscale.dataset.readers.musae import Musae
from gnnscale.dataset.readers.ogb import Mag240m, Ogb
from gnnscale.dataset.readers.planetoid import Planetoid
from gnnscale.dataset.readers.snap import Snap
from gnnscale.dataset.readers.tables import Tables
from gnnscale.dataset.storage.options import StoreOptions
from gnnscale.dataset.storage.raw_files import verify_store
from gnnscale.dataset.storage.store import StoreWriter
from gnnscale.dataset.structure import Structure
from gnnscale.dataset.synthetic import PlantedPartition, RMat
from gnnscale.dataset.tables.ids import read_classes, read_ids

if TYPE_CHECKING:
    from gnnscale.dataset.interop import from_arrays, from_dgl, from_pyg

__getattr__ = lazy_names(__name__, {"gnnscale.dataset.interop": "from_arrays from_dgl from_pyg"})
