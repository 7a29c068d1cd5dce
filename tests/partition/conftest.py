import numpy as np
import pytest

from gnnscale.data import PlantedPartition, from_arrays


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Where partitions are kept."""
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def graph_of(edges, num_vertices, train):
    src, dst = np.array(edges, np.int64).reshape(-1, 2).T
    features = np.zeros((num_vertices, 1), np.float32)
    labels = np.zeros(num_vertices, np.int64)
    return from_arrays(
        (src, dst), features, labels, train_idx=np.array(train), num_classes=1, name="made"
    )


@pytest.fixture(scope="session")
def make_graph():
    return graph_of


@pytest.fixture(scope="session")
def graph(tmp_path_factory):
    """A store of 600 vertices, of which a tenth trains."""
    sizes = {"num_vertices": 600, "num_edges": 900, "num_classes": 4, "num_features": 5}
    store = str(tmp_path_factory.mktemp("whole") / "store")
    return PlantedPartition(name="small", train_fraction=0.1, store=store, **sizes).open()


@pytest.fixture
def bridge():
    """Two cliques of five, 0 to 4 and 5 to 9, and the bridge between 4 and 5; 0 and 9 train."""
    cliques = [[(u + first, v + first) for u in range(5) for v in range(5)] for first in (0, 5)]
    edges = [(u, v) for clique in cliques for u, v in clique if u != v]
    return graph_of([*edges, (4, 5), (5, 4)], 10, [0, 9])


@pytest.fixture(scope="session")
def communities():
    """Sixteen communities of some fifty vertices, of which a third trains."""
    generator = np.random.default_rng(1)
    community = generator.integers(0, 16, 800)
    members = [np.flatnonzero(community == each) for each in range(16)]
    ends = generator.integers(0, 800, 6000)
    inside = [int(generator.choice(members[community[v]])) for v in ends]
    others = generator.integers(0, 800, (400, 2)).tolist()
    edges = [(int(u), v) for u, v in zip(ends, inside, strict=True) if u != v]
    edges += [(u, v) for u, v in others if u != v]
    both = sorted({pair for u, v in edges for pair in ((u, v), (v, u))})
    return graph_of(both, 800, sorted(generator.permutation(800)[:270].tolist()))


def cut_of(graph, owner):
    """Count edges between parts, in both directions."""
    owners = np.asarray(owner)
    dst = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    return int((owners[dst] != owners[graph.indices]).sum())


@pytest.fixture
def cut_edges():
    return cut_of
