import dataclasses
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.core.errors import GraphError
from gnnscale.data import from_arrays
from gnnscale.data.storage.store_verification import verify_store
from gnnscale.data.task_rows import with_checked_rows
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.graph import Graph, Origin, Split, TaskRows
from gnnscale.nn import GAT, GCN, GIN, GraphSAGE
from gnnscale.partition import Hash, PaGraph, view_of_part, write_part
from gnnscale.partition.shard_store import write_row_stores
from gnnscale.sampling import NeighborSampler


@pytest.fixture(scope="module")
def parts(graph):
    return PaGraph().assign(graph, num_parts=3, num_hops=2, num_threads=1)


@pytest.fixture(scope="module")
def stores(graph, parts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    paths = [folder / f"part-{index}" for index in range(parts.num_parts)]
    for index, path in enumerate(paths):
        write_part(graph, parts, index, path)
    return paths


def problems(store):
    return [check.problem for check in verify_store(store) if check.problem]


def arrays_of(batch):
    blocks = [(each.indptr, each.indices, each.edge_vertices) for each in batch.blocks]
    return [batch.input_vertices, *(array for block in blocks for array in block)]


def same_batches(whole, part, fanouts, num_steps=3):
    samplers = [NeighborSampler(each, fanouts=list(fanouts), seed=5) for each in (whole, part)]
    for step in range(num_steps):
        seeds = np.random.default_rng(step).permutation(part.train_idx)[:20]
        pair = [arrays_of(sampler.sample(seeds, step)) for sampler in samplers]
        if not all(a is b is None or np.array_equal(a, b) for a, b in zip(*pair, strict=True)):
            return False
    return True


@pytest.mark.parametrize("fanouts", [[3], [3, 2], [-1, -1], [25, 10]])
def test_batches_are_those_of_the_whole_graph(graph, parts, stores, fanouts):
    for index, path in enumerate(stores):
        assert same_batches(graph, Graph.open(path), fanouts)
        assert same_batches(graph, view_of_part(graph, parts, index), fanouts)
    # One hop more than the part has shows that batches are compared.
    assert not same_batches(graph, Graph.open(stores[0]), [-1, -1, -1])


@pytest.mark.parametrize("config", [GCN, GraphSAGE, GIN, GAT])
def test_every_model_loads_what_it_loads_of_the_whole_graph(graph, stores, config):
    sizes = {"num_features": graph.num_features, "num_classes": graph.num_classes}
    model = config(num_layers=2, hidden=8).build(**sizes)
    for path in stores:
        part = Graph.open(path)
        batch = NeighborSampler(part, fanouts=[-1, -1]).sample(part.train_idx, 0)
        found, expected = (
            FeatureLoader(each, model, num_threads=1).load(batch) for each in (part, graph)
        )
        assert torch.equal(found.x, expected.x)
        assert (found.degrees is None) == (expected.degrees is None)
        if expected.degrees is not None:
            assert torch.equal(torch.as_tensor(found.degrees), torch.as_tensor(expected.degrees))


def test_a_part_holds_no_more_than_its_own(graph, parts, stores):
    trained = []
    for index, path in enumerate(stores):
        part, hops = Graph.open(path), parts.hops[index]
        lists = np.diff(part.indptr)
        assert (lists[hops >= 2] == 0).all()
        assert (lists[hops < 2] == np.diff(graph.indptr)[hops < 2]).all()
        assert (part.degrees[hops == 255] == 0).all()
        assert not part.features[hops == 255].any()
        assert (hops == 255).any()
        trained.append(part.train_idx)
        for name in ("labels", "valid_idx", "test_idx"):
            assert np.array_equal(getattr(part, name), getattr(graph, name))
        for name in ("name", "num_classes", "metric", "attainable_accuracy"):
            assert getattr(part, name) == getattr(graph, name)
    assert np.array_equal(np.sort(np.concatenate(trained)), graph.train_idx)


def test_a_part_is_a_sound_store_that_says_what_it_is(graph, stores):
    for index, path in enumerate(stores):
        assert problems(path) == []
        said = json.loads((path / "meta.json").read_text())
        assert said["part"] == {"index": index, "num_parts": 3, "of": graph.content}
        assert Graph.open(path).content not in (None, graph.content)


def test_rows_that_are_not_there_take_no_room(tmp_path):
    # Rows as long as a page of memory: 0 is at the end of a chain, 1,000 vertices are nowhere.
    chain = (np.array([1, 2]), np.array([0, 1]))
    features = np.ones((1003, 2048), np.float32)
    splits = {"train_idx": [0], "valid_idx": [1], "test_idx": [1002]}
    whole = from_arrays(chain, features, np.zeros(1003, np.int64), **splits, num_classes=1)
    parts = PaGraph().assign(whole, num_parts=1, num_hops=2, num_threads=1)
    write_part(whole, parts, 0, tmp_path / "part")
    file = tmp_path / "part" / "features.npy"
    assert file.stat().st_size > features.nbytes
    assert file.stat().st_blocks * 512 < features.nbytes / 10
    part = Graph.open(tmp_path / "part")
    assert (part.features[:3] == 1).all()
    assert (part.features[3:] == 0).all()
    assert problems(tmp_path / "part") == []


@pytest.mark.long
@settings(max_examples=20)
@given(data=st.data())
def test_any_graph_in_memory(data, tmp_path_factory):
    num_vertices = data.draw(st.integers(3, 12))
    vertex = st.integers(0, num_vertices - 1)
    edges = data.draw(st.lists(st.tuples(vertex, vertex), max_size=30))
    order = data.draw(st.permutations(range(num_vertices)))
    num_train = data.draw(st.integers(1, num_vertices - 2))
    train, valid, test = np.split(np.array(order), [num_train, num_train + 1])
    src, dst = np.array(edges, np.int64).reshape(-1, 2).T
    whole = from_arrays(
        *((src, dst), np.arange(num_vertices * 3.0).reshape(-1, 3), np.zeros(num_vertices, int)),
        **{"train_idx": train, "valid_idx": valid, "test_idx": test, "num_classes": 1},
    )
    num_parts = data.draw(st.integers(1, num_train))
    num_hops = data.draw(st.integers(1, 3))
    parts = PaGraph().assign(whole, num_parts=num_parts, num_hops=num_hops, num_threads=1)
    folder = tmp_path_factory.mktemp("any")
    for index in range(num_parts):
        write_part(whole, parts, index, folder / str(index))
        part = Graph.open(folder / str(index))
        assert same_batches(whole, part, [2] * num_hops)
        assert same_batches(whole, part, [-1] * num_hops)
        assert problems(folder / str(index)) == []


def test_a_part_that_cannot_be_written_leaves_nothing(graph, parts, stores, tmp_path, monkeypatch):
    before = (stores[0] / "meta.json").read_bytes()
    with pytest.raises(GraphError, match="part-0: exists already"):
        write_part(graph, parts, 1, stores[0])
    assert (stores[0] / "meta.json").read_bytes() == before

    def full(*given):
        raise OSError(28, "No space left on device", str(tmp_path / "features.npy"))

    monkeypatch.setattr("gnnscale.partition.shard_store.write_features", full)
    with pytest.raises(GraphError, match="cannot be written, No space left"):
        write_part(graph, parts, 0, tmp_path / "part")
    assert list(tmp_path.iterdir()) == []


def test_parts_without_a_halo_are_refused(graph, parts, stores, tmp_path):
    hashed = Hash().assign(graph, num_parts=2, num_hops=2, num_threads=1)
    with pytest.raises(ValueError, match="expected parts with hops"):
        write_part(graph, hashed, 0, tmp_path / "part")
    for index in (-1, 3):
        with pytest.raises(ValueError, match=f"index: expected 0 to 2, got {index}"):
            write_part(graph, parts, index, tmp_path / "part")
    with pytest.raises(GraphError, match="expected a full graph, got one part"):
        write_part(Graph.open(stores[0]), parts, 0, tmp_path / "part")
    assert list(tmp_path.iterdir()) == []
    none = graph.test_idx[:0]
    alone = dataclasses.replace(graph.with_split(test_idx=none, valid_idx=none), origin=Origin())
    write_part(alone, parts, 0, tmp_path / "part")
    part = Graph.open(tmp_path / "part")
    assert (len(part.valid_idx), len(part.test_idx)) == (0, 0)


def changed_meta(path, folder, **changes):
    """Return a store like that at ``path``, of which meta.json says something else."""
    folder.mkdir()
    for file in path.iterdir():
        (folder / file.name).symlink_to(file)
    meta = json.loads((path / "meta.json").read_text())
    meta["part"] |= changes.pop("part", {})
    meta |= changes
    (folder / "meta.json").unlink()
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"part": {"index": 3}}, "entry.part: index is 3, allowed are 0 to 2"),
        ({"part": {"index": True}}, "entry.part.index: Expected `int`, got `bool`"),
        ({"part": {"num_parts": 0}}, "entry.part: index is 0, allowed are 0 to -1"),
        ({"part": {"of": "../../etc"}}, "entry.part.of: Expected `str` matching regex"),
        ({"part": {"of": "0" * 32 + "\n"}}, "entry.part.of: Expected `str` matching regex"),
    ],
)
def test_what_a_store_says_of_its_part_is_checked(stores, tmp_path, changes, said):
    Graph.open(changed_meta(stores[0], tmp_path / "same"))
    with pytest.raises(GraphError) as error:
        Graph.open(changed_meta(stores[0], tmp_path / "changed", **changes))
    assert said in str(error.value)


def test_a_whole_graph_does_not_pass_for_a_part(graph, tmp_path):
    assert graph.degrees is None
    meta = json.loads((graph.path / "meta.json").read_text())
    part = {"index": 0, "num_parts": 1, "of": "0" * 32}
    (tmp_path / "meta.json").write_text(json.dumps(meta | {"part": part}))
    with pytest.raises(GraphError, match=r"arrays: expected \['degrees', "):
        Graph.open(tmp_path)


def test_degrees_that_contradict_the_lists(stores, tmp_path):
    part = Graph.open(stores[0])
    folder = changed_meta(stores[0], tmp_path / "changed")
    listed = int(np.flatnonzero(np.diff(part.indptr))[5])
    degrees = np.array(part.degrees)
    degrees[listed] += 1
    (folder / "degrees.npy").unlink()
    np.save(folder / "degrees.npy", degrees)
    with pytest.raises(GraphError, match=f"vertex {listed} has degree {degrees[listed]}, and"):
        Graph.open(folder)
    for wrong in (degrees.astype(np.int64), degrees[:-1]):
        np.save(folder / "degrees.npy", wrong)
        with pytest.raises(GraphError, match=r"degrees\.npy: "):
            Graph.open(folder)
    (folder / "degrees.npy").unlink()
    with pytest.raises(GraphError, match=r"degrees\.npy: missing"):
        Graph.open(folder)


def test_weights_and_features_stay_with_their_edges(tmp_path):
    generator = np.random.default_rng(0)
    ends = generator.permutation(900)[:120]
    splits = {"train_idx": np.arange(10), "valid_idx": [20], "test_idx": [21]}
    features = generator.random((120, 3)).astype(np.float32)
    of_edges = {"edge_weights": generator.random(120), "edge_features": features}
    rows, labels = np.ones((30, 2), np.float32), np.arange(30) % 2
    whole = from_arrays(np.divmod(ends, 30), rows, labels, **splits, **of_edges)
    parts = PaGraph().assign(whole, num_parts=2, num_hops=1, num_threads=1)
    for index in range(2):
        write_part(whole, parts, index, tmp_path / str(index))
        part = Graph.open(tmp_path / str(index))
        assert 0 < part.num_edges < whole.num_edges
        for vertex in np.flatnonzero(np.diff(part.indptr)):
            own, all_ = (slice(*each.indptr[vertex : vertex + 2]) for each in (part, whole))
            for name in ("indices", "edge_weights", "edge_rows"):
                assert getattr(part, name)[own].tolist() == getattr(whole, name)[all_].tolist()
        kept = np.unique(part.edge_rows)
        np.testing.assert_array_equal(part.edge_features[kept], features[kept])
        assert not part.edge_features[np.setdiff1d(np.arange(120), kept)].any()
        assert problems(tmp_path / str(index)) == []


def timed(rows: TaskRows | None = None) -> Graph:
    generator = np.random.default_rng(3)
    graph = from_arrays(
        generator.integers(0, 40, (2, 200)),
        np.ones((40, 2), np.float32),
        np.arange(40) % 2,
        split="random",
        edge_times=generator.integers(0, 50, 200),
        vertex_times=generator.integers(0, 50, 40),
        edge_weights=generator.random(200),
    )
    return graph if rows is None else with_checked_rows(graph, rows)


def test_times_stay_with_their_edges(tmp_path):
    graph = timed()
    parts = PaGraph().assign(graph, num_parts=2, num_hops=1, num_threads=1)
    for index in range(2):
        write_part(graph, parts, index, tmp_path / str(index))
        part = Graph.open(tmp_path / str(index))
        assert problems(tmp_path / str(index)) == []
        assert part.times.unit == "s"
        assert part.times.vertices.tolist() == graph.times.vertices.tolist()
        assert 0 < part.num_edges < graph.num_edges
        for vertex in np.flatnonzero(np.diff(part.indptr)):
            inside, whole = (slice(*each.indptr[vertex : vertex + 2]) for each in (part, graph))
            assert part.times.edges[inside].tolist() == graph.times.edges[whole].tolist()
            assert part.edge_weights[inside].tolist() == graph.edge_weights[whole].tolist()


def test_rows_of_a_task_stay_in_stores_of_rows_alone(tmp_path):
    split = Split(train_idx=np.array([0, 1]))
    rows = TaskRows(
        name="", vertices=[1, 2], cutoffs=[30, 40], labels=[0, 1], num_classes=2, split=split
    )
    graph = timed(rows)
    parts = PaGraph().assign(graph, num_parts=2, num_hops=1, num_threads=1)
    with pytest.raises(
        GraphError, match="part_stores: expected a graph without rows of a task, got"
    ):
        write_part(graph, parts, 0, tmp_path / "part")
    parts = Hash().assign(graph, num_parts=2, num_hops=1, num_threads=1)
    write_row_stores(graph, parts, tmp_path, partition="0" * 32, indices=[1])
    opened = Graph.open(tmp_path / "1")
    assert problems(tmp_path / "1") == []
    assert opened.rows.vertices.tolist() == [1, 2]
    assert opened.rows.split.train_idx.tolist() == [0, 1]
    assert opened.times.edges.tolist() == graph.times.edges.tolist()


def test_times_of_types_stay_with_their_edges(tmp_path):
    generator = np.random.default_rng(4)
    triples = [("user", "buys", "item"), ("item", "of", "user"), ("user", "knows", "user")]
    sizes = {"user": 20, "item": 15}
    graph = from_typed_arrays(
        {"user": np.ones((20, 2), np.float32), "item": None},
        {
            triple: [generator.integers(0, sizes[triple[end]], 60) for end in (0, 2)]
            for triple in triples
        },
        ("user", np.arange(20) % 2),
        num_vertices={"item": 15},
        edge_times={triples[0]: generator.integers(0, 50, 60)},
        vertex_times={"item": generator.integers(0, 50, 15)},
        split="random",
    )
    parts = PaGraph().assign(graph.without_types(), num_parts=2, num_hops=1, num_threads=1)
    write_part(graph, parts, 1, tmp_path / "part")
    part = Graph.open(tmp_path / "part")
    assert problems(tmp_path / "part") == []
    assert part.times.vertices.tolist() == graph.times.vertices.tolist()
    for row in np.flatnonzero(np.diff(part.indptr)):
        inside, whole = (slice(*each.indptr[row : row + 2]) for each in (part, graph))
        assert part.times.edges[inside].tolist() == graph.times.edges[whole].tolist()
        assert part.indices[inside].tolist() == graph.indices[whole].tolist()
