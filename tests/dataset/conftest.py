from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from gnnscale.graph import Graph

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Stores and downloads of a test go to its own directory."""
    path = tmp_path / "home"
    monkeypatch.setenv("GNNSCALE_HOME", str(path))
    return path


@pytest.fixture(scope="session")
def data():
    """The folder of real graphs."""
    path = Path(os.environ.get("GNNSCALE_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"no real graphs in {path} (GNNSCALE_TEST_DATA)")
    return path


@pytest.fixture
def adjacency():
    """Return the in-neighbour lists of a graph as a scipy matrix, destination by source."""

    def build(graph: Graph) -> scipy.sparse.csr_matrix:
        ones = np.ones(graph.num_edges, np.int64)
        shape = (graph.num_vertices, graph.num_vertices)
        return scipy.sparse.csr_matrix((ones, graph.indices, graph.indptr), shape=shape)

    return build
