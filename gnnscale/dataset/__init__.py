"""Datasets: published and generated graphs → graph store → Graph."""

from gnnscale.dataset.base import Dataset, random_split
from gnnscale.dataset.csr import Csr
from gnnscale.dataset.gnn_benchmark import GnnBenchmark
from gnnscale.dataset.graphsaint import GraphSaint
from gnnscale.dataset.heterophilous import Heterophilous
from gnnscale.dataset.interop import from_arrays, from_dgl, from_pyg
from gnnscale.dataset.mag240m import Mag240m
from gnnscale.dataset.musae import Musae
from gnnscale.dataset.ogb import Ogb
from gnnscale.dataset.planetoid import Planetoid
from gnnscale.dataset.snap import Snap
from gnnscale.dataset.store import StoreOptions, StoreWriter, verify_store
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
