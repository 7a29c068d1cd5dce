"""Datasets: published and generated graphs → graph store → Graph."""

from gnnscale.dataset.base import Dataset, random_split
from gnnscale.dataset.interop import from_arrays, from_dgl, from_pyg
from gnnscale.dataset.readers.csr import Csr
from gnnscale.dataset.readers.gnn_benchmark import GnnBenchmark
from gnnscale.dataset.readers.graphsaint import GraphSaint
from gnnscale.dataset.readers.heterophilous import Heterophilous
from gnnscale.dataset.readers.mag240m import Mag240m
from gnnscale.dataset.readers.musae import Musae
from gnnscale.dataset.readers.ogb import Ogb
from gnnscale.dataset.readers.planetoid import Planetoid
from gnnscale.dataset.readers.snap import Snap
from gnnscale.dataset.storage.store import StoreOptions, StoreWriter
from gnnscale.dataset.storage.verify import verify_store
from gnnscale.dataset.structure import Structure
from gnnscale.dataset.synthetic import PlantedPartition, RMat

__all__ = [
    "Csr",
    "Dataset",
    "GnnBenchmark",
    "GraphSaint",
    "Heterophilous",
    "Mag240m",
    "Musae",
    "Ogb",
    "Planetoid",
    "PlantedPartition",
    "RMat",
    "Snap",
    "StoreOptions",
    "StoreWriter",
    "Structure",
    "from_arrays",
    "from_dgl",
    "from_pyg",
    "random_split",
    "verify_store",
]
