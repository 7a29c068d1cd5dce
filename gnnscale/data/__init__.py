"""Datasets: published and generated graphs → graph store → Graph.

``from_arrays``, ``from_pyg`` and the like need torch, which is imported at their first use.
"""

from typing import TYPE_CHECKING

from gnnscale.core.lazy import lazy_names
from gnnscale.data.base import Dataset, ExistingStore
from gnnscale.data.readers.arrays import Arrays
from gnnscale.data.readers.edge_list import EdgeList, Snap
from gnnscale.data.readers.graphml import GraphMl
from gnnscale.data.readers.graphsaint import GraphSaint
from gnnscale.data.readers.heco import Heco
from gnnscale.data.readers.matrix_market import MatrixMarket
from gnnscale.data.readers.musae import Musae
from gnnscale.data.readers.npz_benchmarks import GnnBenchmark, Heterophilous
from gnnscale.data.readers.ogb import Mag240m, Ogb
from gnnscale.data.readers.planetoid import Planetoid
from gnnscale.data.readers.relational.rel_f1 import RelF1
from gnnscale.data.readers.relational.relational_tables import Relational
from gnnscale.data.readers.tables import Tables
from gnnscale.data.readers.typed.typed_tables import TypedTables
from gnnscale.data.source import GraphSource
from gnnscale.data.splits import random_edge_split, random_split
from gnnscale.data.storage.options import StoreOptions
from gnnscale.data.storage.store_verification import verify_store
from gnnscale.data.storage.writer import StoreWriter
from gnnscale.data.structure_only import Csr, Structure
from gnnscale.data.synthetic import PlantedPartition, RMat
from gnnscale.data.tables.vertex_ids import read_classes, read_ids
from gnnscale.data.typed_dataset import TypedDataset
from gnnscale.data.typed_partition import TypedPartition

if TYPE_CHECKING:
    from gnnscale.data.frames import from_tables
    from gnnscale.data.interop import from_arrays
    from gnnscale.data.networks import from_networkx, from_scipy
    from gnnscale.data.peers import from_dgl, from_pyg
    from gnnscale.data.row_arrays import with_rows
    from gnnscale.data.to_peers import to_dgl, to_pyg

__getattr__ = lazy_names(
    __name__,
    {
        "gnnscale.data.frames": "from_tables",
        "gnnscale.data.interop": "from_arrays",
        "gnnscale.data.networks": "from_networkx from_scipy",
        "gnnscale.data.peers": "from_dgl from_pyg",
        "gnnscale.data.row_arrays": "with_rows",
        "gnnscale.data.to_peers": "to_dgl to_pyg",
    },
)
