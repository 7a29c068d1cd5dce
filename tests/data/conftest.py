import multiprocessing

import numpy as np
import pytest
import scipy.sparse

from gnnscale.graph import Graph


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Stores and downloads of a test go to its own directory."""
    path = tmp_path / "home"
    monkeypatch.setenv("GNNSCALE_HOME", str(path))
    return path


@pytest.fixture
def adjacency():
    """Return the in-neighbor lists of a graph as a scipy matrix, destination by source."""

    def build(graph: Graph) -> scipy.sparse.csr_matrix:
        ones = np.ones(graph.num_edges, np.int64)
        shape = (graph.num_vertices, graph.num_vertices)
        return scipy.sparse.csr_matrix((ones, graph.indices, graph.indptr), shape=shape)

    return build


@pytest.fixture
def forked():
    """Call a function in several processes at once; return what they put into a queue."""

    def run(count, function, *arguments):
        context = multiprocessing.get_context("fork")
        queue = context.SimpleQueue()
        arguments = (*arguments, queue)
        processes = [context.Process(target=function, args=arguments) for _ in range(count)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(30)
            assert process.exitcode == 0
        found = []
        while not queue.empty():
            found.append(queue.get())
        return found

    return run
