import json
import resource
import shutil
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line

from gnnscale import ops
from gnnscale.core.artifact.files import new_folder
from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.data.storage import edge_spool, edge_writer
from gnnscale.data.storage.options import StoreOptions
from gnnscale.data.storage.writer import StoreWriter
from gnnscale.graph import Graph
from gnnscale.graph.dtypes import quantized

SPLIT = (np.array([2]), np.array([0]), np.array([1]))


def write(path, *, options=None, edges=((0, 1), (2, 1)), num_vertices=3, **parts):
    """Write a store of three vertices, with the parts under test replaced."""
    path.mkdir()
    with StoreWriter(path, options or StoreOptions()) as writer:
        writer.set_num_vertices(num_vertices, source="raw")
        src, dst = np.array(edges, np.int64).reshape(-1, 2).T
        writer.add_edges(src, dst, weights=parts.get("weights"), source="raw")
        features = parts.get("features", np.ones((num_vertices, 2), np.float32))
        dtype = parts.get("dtype", "float32")
        writer.write_features([features], num_features=2, dtype=dtype, source="raw")
        labels = parts.get("labels", np.arange(num_vertices) % 2)
        kind = {"num_classes": parts.get("num_classes"), "metric": parts.get("metric", "accuracy")}
        writer.set_labels(labels, **kind, source="raw")
        writer.set_split(*parts.get("split", SPLIT), source="raw")
        writer.finish(name="tiny", source="raw", options={})
    return Graph.open(path)


@pytest.fixture
def writer(tmp_path):
    """A writer of three vertices."""
    (tmp_path / "three").mkdir()
    with StoreWriter(tmp_path / "three", StoreOptions()) as writer:
        writer.set_num_vertices(3, source="raw")
        yield writer


def test_tiny_graph(tmp_path):
    graph = write(tmp_path / "store", edges=[(2, 1), (0, 1), (1, 0), (2, 1)])
    assert (graph.indptr.tolist(), graph.indices.tolist()) == ([0, 1, 3, 3], [1, 0, 2])
    assert (graph.indices.dtype, graph.labels.tolist()) == (np.int32, [0, 1, 0])
    assert (graph.train_idx, graph.valid_idx, graph.test_idx) == SPLIT
    assert (graph.name, graph.num_classes) == ("tiny", 2)


def stored_lists(path, options, edges, *, weights=None, features=True, num_vertices=3, cuts=()):
    """Return neighbors of each vertex, with the rows and weights of their edges if there are some.

    Edge ``i`` has the features ``[i, -i]``; they are compared with what is stored.
    """
    path.mkdir(exist_ok=True)
    src, dst = np.array(edges, np.int64).reshape(-1, 2).T
    of_edges = {"features": np.arange(len(src))[:, None] * [1, -1]} if features else {}
    of_edges |= {} if weights is None else {"weights": np.array(weights, np.float32)}
    with StoreWriter(path, options) as writer:
        writer.set_num_vertices(num_vertices, source="raw")
        for part in np.split(np.arange(len(src)), sorted(cuts)):
            some = {name: array[part] for name, array in of_edges.items()}
            writer.add_edges(src[part], dst[part], **some, source="raw")
        indptr, indices = writer.build_topology()
    kept, names = [indices.tolist()], {"indices", "indptr"}
    if features:
        rows, stored = np.load(path / "edge_rows.npy"), np.load(path / "edge_features.npy")
        assert (rows.dtype, stored.dtype) == (np.uint32, np.float32)
        added = [[0, 0]] * (options.self_loops == "add")
        assert stored.tolist() == [*of_edges["features"].tolist(), *added]
        assert np.load(path / "edge_ends.npy").tolist() == [*map(list, edges)]
        kept.append(rows.tolist())
        names |= {"edge_rows", "edge_features", "edge_ends"}
    if weights is not None:
        kept.append(np.load(path / "edge_weights.npy").tolist())
        names.add("edge_weights")
    assert {file.stem for file in path.iterdir()} == names
    ends = list(zip(*kept, strict=True))
    return [ends[indptr[v] : indptr[v + 1]] for v in range(num_vertices)]


EDGES = [(0, 1), (0, 1), (2, 1), (2, 2)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [[], [(0, 0, 2.5), (2, 2, 3)], [(2, 3, 4)]]),
        ({"drop_duplicates": False}, [[], [(0, 0, 2), (0, 1, 0.5), (2, 2, 3)], [(2, 3, 4)]]),
        ({"undirected": True}, [[(1, 0, 2.5)], [(0, 0, 2.5), (2, 2, 3)], [(1, 2, 3), (2, 3, 4)]]),
        ({"self_loops": "remove"}, [[], [(0, 0, 2.5), (2, 2, 3)], []]),
        # Loops that are added share a row of zeros after the four that are published.
        ({"self_loops": "add"}, [[(0, 4, 1)], [(0, 0, 2.5), (1, 4, 1), (2, 2, 3)], [(2, 4, 1)]]),
    ],
)
def test_edges_by_hand(tmp_path, options, expected):
    options, weights = StoreOptions(**options), [2, 0.5, 3, 4]
    found = stored_lists(tmp_path / "both", options, EDGES, weights=weights, cuts=[3])
    assert found == expected
    found = stored_lists(tmp_path / "weights", options, EDGES, weights=weights, features=False)
    # By ascending weight, as edges have no rows.
    assert found == [sorted((src, weight) for src, _, weight in ends) for ends in expected]


def test_an_edge_that_is_published_both_ways_has_one_row(tmp_path):
    options = StoreOptions(undirected=True)
    found = stored_lists(tmp_path, options, [(1, 0), (0, 1)], weights=[2, 3], num_vertices=2)
    assert found == [[(1, 0, 5)], [(0, 0, 5)]]


def expected_lists(options, edges, weights, num_vertices):
    """Return what ``stored_lists`` does, edge by edge, with rows and weights."""
    lists = [[] for _ in range(num_vertices)]
    for row, ((src, dst), weight) in enumerate(zip(edges, weights, strict=True)):
        if src == dst and options.self_loops != "keep":
            continue
        lists[dst].append((src, row, weight))
        if options.undirected and src != dst:
            lists[src].append((dst, row, weight))
    for vertex, ends in enumerate(lists):
        if options.self_loops == "add":
            ends.append((vertex, len(edges), 1))
        ends.sort()
    if not options.drop_duplicates:
        return lists
    return [
        [
            (src, min(same)[1], float(np.float32(sum(weight for _, _, weight in same))))
            for src in sorted({end[0] for end in ends})
            for same in [[end for end in ends if end[0] == src]]
        ]
        for ends in lists
    ]


@pytest.mark.long
@settings(deadline=None, max_examples=30)
@given(
    edges=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=40),
    weighted=st.booleans(),
    features=st.booleans(),
    self_loops=st.sampled_from(edge_spool.SELF_LOOPS),
    undirected=st.booleans(),
    drop_duplicates=st.booleans(),
    memory_bytes=st.sampled_from([1, 400, 1 << 20]),
    cuts=st.lists(st.integers(0, 40), max_size=3),
)
def test_lists_are_those_of_a_slow_reference(
    tmp_path_factory, edges, weighted, features, memory_bytes, cuts, **options
):
    path = tmp_path_factory.mktemp("store")
    options = StoreOptions(**options, memory_bytes=memory_bytes)
    features = features and bool(edges)
    values = np.float32([0, 0.25, 1, 2, 1e30])
    weights = np.random.default_rng(len(edges)).choice(values, len(edges)).tolist()
    of_edges = {"weights": weights if weighted and edges else None, "features": features}
    found = stored_lists(path, options, edges, **of_edges, num_vertices=5, cuts=cuts)
    places = [0, *[1] * features, *[2] * (of_edges["weights"] is not None)]
    expected = expected_lists(options, edges, weights, 5)
    picked = [[tuple(end[place] for place in places) for end in ends] for ends in expected]
    assert found == (picked if features else [*map(sorted, picked)])


BAD_FEATURES_OF_EDGES = [
    (1, None, "raw: edges have no features, those before have some"),
    (None, [[1], [1]], "raw: edges have features, those before have n"),
    (1, [[1]], "raw: 1 rows of features for 2 edges"),
    (1, [[1, 2], [1, 2]], "raw: expected 1 features as for the edges before, got 2 from edge 2"),
    (1, [[0], [np.nan]], "raw: feature 0 of edge 3 is nan, features must be finite"),
    (1, [[1e39], [0]], "raw: feature 0 of edge 2 is 1e+39, float32 cannot hold it"),
    (1, [1, 2], r"raw: features of edges: expected 2 axes, got int64[2] with 1"),
    (1, [["a"], ["b"]], "raw: features of edges: expected numbers, got <U1[2, 1]"),
]


@pytest.mark.parametrize(("before", "features", "message"), BAD_FEATURES_OF_EDGES)
def test_features_of_edges_that_are_refused(writer, before, features, message):
    ends = np.array([0, 1]), np.array([1, 2])
    rows = None if before is None else np.ones((2, before))
    writer.add_edges(*ends, features=rows, source="raw")
    features = features if features is None else np.array(features)
    with one_line(error=GraphError, begins=message):
        writer.add_edges(*ends, features=features, source="raw")


def test_features_of_too_many_edges_or_of_another_number(writer, monkeypatch):
    ends = np.array([0]), np.array([1])
    for width in (0, (1 << 16) + 1):
        message = f"raw: edges: expected 1 to 65536 features, got {width}"
        with one_line(error=GraphError, begins=message):
            writer.add_edges(*ends, features=np.zeros((1, width), np.uint8), source="raw")
    monkeypatch.setattr(edge_writer, "MAX_EDGE_ROWS", 2)
    writer.add_edges(*ends, features=np.ones((1, 1)), source="raw")
    with one_line(error=GraphError, begins="raw: expected up to 1 edges with features or labels,"):
        writer.add_edges(*ends, features=np.ones((1, 1)), source="raw")


BAD_WEIGHT = "expected a weight of at least 0 in the range of float32,"


@pytest.mark.parametrize(
    ("before", "weights", "message"),
    [
        ([1, 1], [1, -1], f"raw: edge 1: {BAD_WEIGHT}"),
        ([1, 1], [np.nan, 1], f"raw: edge 0: {BAD_WEIGHT}"),
        ([1, 1], [1, 1e39], f"raw: edge 1: {BAD_WEIGHT}"),
        ([1, 1], [1], "raw: 1 weights for 2 edges"),
        ([1, 1], None, "raw: edges have no weights, those before have some"),
        (None, [1, 1], "raw: edges have weights, those before have none"),
    ],
)
def test_weights_that_are_refused(writer, before, weights, message):
    before, weights = (None if w is None else np.array(w, np.float64) for w in (before, weights))
    ends = np.array([0, 1]), np.array([1, 2])
    writer.add_edges(*ends, weights=before, source="raw")
    with one_line(error=GraphError, begins=message):
        writer.add_edges(*ends, weights=weights, source="raw")


def test_weights_and_features_of_too_many_vertices_and_sums_that_overflow(tmp_path, monkeypatch):
    edges, options = [(0, 1), (0, 2), (0, 1)], StoreOptions()
    message = r"^edge 0 to 1: expected weights of repeated edges with a sum in the"
    with pytest.raises(GraphError, match=message):
        stored_lists(tmp_path, options, edges, weights=[3e38, 1, 3e38], features=False)
    monkeypatch.setattr(edge_spool, "vertex_dtype", lambda num_vertices: np.dtype(np.int64))
    for features, of_edges in ((False, "weights"), (True, "features")):
        weights = None if features else [1, 1, 1]
        with pytest.raises(GraphError, match=f"{of_edges} of edges, got 3"):
            stored_lists(tmp_path, options, edges, weights=weights, features=features)


def skewed(num_vertices):
    """Edges to all vertices, most to the first ones, and a tenth to vertex 7."""
    generator = np.random.default_rng(1)
    dst = (num_vertices * generator.random(300_000) ** 3).astype(np.int64)
    dst[::10] = 7
    return generator.integers(num_vertices, size=len(dst)), dst


@pytest.mark.long
@pytest.mark.parametrize("memory_bytes", [1 << 30, 30_000])
def test_each_edge_is_sorted_once(tmp_path, monkeypatch, memory_bytes):
    """In four blocks of vertices, some of them cut, and a list longer than what is allowed."""
    filled, fill = [], ops.csc_fill
    monkeypatch.setattr(
        ops, "csc_fill", lambda src, *rest: filled.append(len(src)) or fill(src, *rest)
    )
    src, dst = skewed(200_000)
    options = StoreOptions(self_loops="add", drop_duplicates=False, memory_bytes=memory_bytes)
    with StoreWriter(tmp_path, options) as writer:
        writer.set_num_vertices(200_000, source="raw")
        for part in np.array_split(np.arange(len(src)), 3):
            writer.add_edges(src[part], dst[part], source="raw")
        indptr, indices = writer.build_topology()
    num_loops = int((src == dst).sum())
    assert sum(filled) == len(src) - num_loops + 200_000
    own = np.arange(200_000)
    src, dst = np.append(src[src != dst], own), np.append(dst[src != dst], own)
    np.testing.assert_array_equal(np.diff(indptr), np.bincount(dst))
    np.testing.assert_array_equal(indices, src[np.lexsort([src, dst])])


def test_edges_leave_the_disk_as_they_are_sorted(tmp_path, monkeypatch):
    used, sort = [], ops.csc_sort

    def measured(*given):
        used.append(sum(each.stat().st_blocks * 512 for each in tmp_path.iterdir()))
        return sort(*given)

    monkeypatch.setattr(ops, "csc_sort", measured)
    with StoreWriter(tmp_path, StoreOptions(drop_duplicates=False, memory_bytes=1)) as writer:
        writer.set_num_vertices(1000, source="raw")
        src, dst = np.divmod(np.arange(1_000_000), 1000)
        writer.add_edges(src[dst != src], dst[dst != src], source="raw")
        writer.build_topology()
    spooled, lists = 8 * 999_000, 4 * 999_000
    assert len(used) == 1000
    assert max(used) < spooled + (1 << 16)
    assert used[-1] < lists + (1 << 17)


@pytest.mark.long
def test_sorting_that_is_interrupted_leaves_no_edges(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ops, "csc_sort", interrupt)
    with StoreWriter(tmp_path, StoreOptions(memory_bytes=100)) as writer:
        writer.set_num_vertices(200_000, source="raw")
        writer.add_edges(*skewed(200_000), source="raw")
        with pytest.raises(KeyboardInterrupt):
            writer.build_topology()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["indices.npy", "indptr.npy"]


def test_feature_types(tmp_path):
    for dtype, values in (("float16", [0.5, -2]), ("uint8", [0, 255]), ("float32", [0.1, 1e30])):
        rows, options = np.array([values] * 3, np.float32), StoreOptions(feature_dtype=dtype)
        graph = write(tmp_path / dtype, features=rows, options=options)
        assert graph.feature_dtype == dtype == str(graph.features.dtype)
        np.testing.assert_array_equal(graph.features, rows)
    # bfloat16 rounds as torch does.
    rows = np.random.default_rng(0).standard_normal((3, 2)).astype(np.float32)
    rows[0] = [1 + 2**-8, 1 + 3 * 2**-8]  # ties
    options = StoreOptions(feature_dtype="bfloat16")
    graph = write(tmp_path / "bfloat16", features=rows, options=options)
    assert graph.feature_dtype == "bfloat16"
    expected = torch.from_numpy(rows).bfloat16().view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(graph.features, expected)


@pytest.mark.parametrize(("dtype", "standardize"), [("int8", False), ("int4", True)])
def test_rows_with_a_scale(tmp_path, dtype, standardize):
    features, options = np.float32([[1, 3], [0, 0], [2, -5]]), {"standardize": standardize}
    plain = write(tmp_path / "plain", features=features, options=StoreOptions(**options))
    options = StoreOptions(feature_dtype=dtype, **options)
    graph = write(tmp_path / "store", features=features, options=options)
    assert (graph.feature_dtype, graph.num_features) == (dtype, 2)
    assert graph.features.dtype == np.uint8
    assert np.array_equal(graph.features, quantized(plain.features, dtype))


def test_normalized_features(tmp_path):
    options, whole = StoreOptions(normalize_features=True), np.uint8([[1, 3], [0, 0], [2, 0]])
    graph = write(tmp_path / "whole", features=whole, dtype="uint8", options=options)
    assert graph.feature_dtype == "float32"
    assert graph.features.tolist() == [[0.25, 0.75], [0, 0], [1, 0]]
    scaled = StoreOptions(normalize_features=True, feature_dtype="int8")
    lossy = write(tmp_path / "scaled", features=whole, dtype="uint8", options=scaled)
    assert np.array_equal(lossy.features, quantized(np.array(graph.features), "int8"))
    large = np.array([[3e38, 3e38], [0, 0], [1, -1]], np.float32)  # its sum overflows
    graph = write(tmp_path / "large", features=large, options=options)
    assert graph.features.tolist() == [[0, 0], [0, 0], [1, -1]]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_with_a_scale_are_finite(tmp_path, value):
    features = np.ones((3, 2), np.float32)
    features[1, 1] = value
    with pytest.raises(GraphError, match=r"^raw: feature 1 of vertex 1 .* finite"):
        write(tmp_path / "one", features=features, options=StoreOptions(feature_dtype="int8"))
    message = "^dataset.feature_dtype=int4: raw: feature 1 of vertex 1: expected a"
    features = np.ones((3, 2))
    features[1, 1] = 1e300
    with pytest.raises(ConfigError, match=message):
        write(tmp_path / "two", features=features, options=StoreOptions(feature_dtype="int4"))


def test_rows_with_a_scale_of_another_form(tmp_path):
    write(tmp_path / "store", options=StoreOptions(feature_dtype="int8"))
    file = tmp_path / "store" / "meta.json"
    meta = json.loads(file.read_text())
    for changes, message in (
        ({"num_features": 3}, r"features.npy: .*\[3, 6\]"),
        ({"feature_dtype": "int4"}, r"features.npy: .*\[3, 6\]"),
        ({"feature_dtype": "int2"}, "feature_dtype"),
        ({"feature_dtype": "float32"}, "features.npy: .*uint8"),
    ):
        file.write_text(json.dumps(meta | changes))
        with pytest.raises(GraphError, match=message):
            Graph.open(tmp_path / "store")


def test_regression_and_several_classes(tmp_path):
    graph = write(tmp_path / "one", labels=np.array([0.5, np.nan, -3]), metric="rmse")
    assert (graph.regression, graph.multilabel) == (True, False)
    assert graph.labels.dtype == np.float32
    assert np.array_equal(graph.labels, np.float32([0.5, np.nan, -3]), equal_nan=True)
    assert (graph.num_classes, graph.metric) == (1, "rmse")
    targets = np.array([[1, 2], [np.nan, 3], [5, 6]], np.float16)
    graph = write(tmp_path / "two", labels=targets, metric="rmse")
    assert (graph.num_classes, graph.labels.dtype) == (2, np.float32)
    graph = write(tmp_path / "several", labels=np.array([[1, 0], [1, 1], [0, 0]]))
    assert graph.multilabel
    assert (graph.labels.dtype, graph.num_classes) == (np.uint8, 2)


def test_a_graph_without_labels_and_edges(writer, tmp_path):
    writer.add_edges(np.array([], int), np.array([], int), source="raw")
    rows = np.ones((3, 2), np.float32)
    writer.write_features([rows], num_features=2, dtype="float32", source="raw")
    writer.set_unlabeled()
    assert not writer.has_labels
    writer.finish(name="tiny", source="raw", options={})
    graph = Graph.open(tmp_path / "three")
    assert (graph.indptr.tolist(), graph.labels.tolist()) == ([0, 0, 0, 0], [-1, -1, -1])
    assert graph.num_classes == 0
    assert [len(ids) for ids in (graph.train_idx, graph.valid_idx, graph.test_idx)] == [0, 0, 0]


NAN, INFINITE = np.ones((3, 2), np.float32), np.ones((3, 2), np.float32)
NAN[1, 0], INFINITE[2, 1] = np.nan, np.inf


BAD_TARGET = "raw: label of vertex 1: expected a number in the range of float32,"


def targets(labels):
    return {"labels": np.array(labels, np.float64), "metric": "rmse"}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"edges": [(0, -1)]}, "raw: vertex id -1 is negative"),
        ({"edges": [(0, 3)]}, "raw: vertex id 3 is out of range, the graph has 3 vertices"),
        ({"num_vertices": 0, "edges": []}, "raw: expected at least 1 vertex, got 0"),
        ({"features": NAN}, "raw: feature 0 of vertex 1 is nan"),
        ({"features": INFINITE}, "raw: feature 1 of vertex 2 is inf"),
        (
            {"features": np.full((3, 2), 1e300)},
            "raw: feature 0 of vertex 0: expected a value of float32, got 1e+300",
        ),
        *(({"features": np.ones(shape)}, "raw: features") for shape in [(3, 3), (3,), (3, 2, 1)]),
        ({"features": np.ones((2, 2))}, "raw: 2 feature rows for 3 vertices"),
        (
            {"labels": np.array([0, 1, 5]), "num_classes": 3},
            "label of vertex 2: expected -1 to 2, got 5",
        ),
        ({"labels": np.array([0, -2, 1])}, "label of vertex 1: expected -1 to 1, got -2"),
        ({"labels": np.array([0, 1])}, "2 labels for 3 vertices"),
        (
            {"labels": np.float64([[0, 1], [np.nan, 0], [1, 1]])},
            "label of vertex 1: expected 0 to 1, got nan",
        ),
        ({"labels": np.array([-1, -1, -1])}, "no vertex has a label"),
        ({"labels": np.array([0, 1, -1])}, "vertex 2 of the train split has no label"),
        ({"num_classes": 2**20 + 1}, "raw: expected up to 1048576 classes, got 1048577"),
        *((targets([0.5, large, 1]), BAD_TARGET) for large in (np.inf, 1e300)),
        (targets([np.nan] * 3), "raw: no vertex has a label"),
        (targets([0.5, 1]), "raw: 2 labels for 3 vertices"),
        (targets([np.nan, 1, 1]), "raw: vertex 0 of the valid split has no label"),
        (targets([[]] * 3), "expected labels, classes [3], "),
        ({"split": ([], [2], [1])}, "raw: the train split is empty"),
        ({"split": ([2], [2], [1])}, "overlapping splits, vertex 2 of the valid split"),
        ({"split": ([2], [0], [3])}, "raw: test split: vertex id 3 is out of range"),
        ({"split": ([2], [0], [1.0])}, "test split: expected integers as vertex ids, got float64"),
        ({"split": ([2, 2], [0], [1])}, "the train split names a vertex twice"),
    ],
)
def test_bad_input(tmp_path, parts, message):
    if "split" in parts:
        parts["split"] = tuple(map(np.array, parts["split"]))
    with one_line(message, error=GraphError):
        write(tmp_path / "store", **parts)


def test_ids_and_rows_that_are_refused(writer, tmp_path):
    with pytest.raises(GraphError, match="raw: expected integers as vertex ids, got float64"):
        writer.add_edges(np.array([0.0]), np.array([1.5]), source="raw")
    for width in (0, 65_537):
        with pytest.raises(GraphError, match=f"raw: expected 1 to 65536 features, got {width}"):
            writer.write_features([], num_features=width, dtype="float32", source="raw")
    early = StoreWriter(tmp_path, StoreOptions())
    with pytest.raises(GraphError, match="raw: edges come before the number of vertices is known"):
        early.add_edges(np.array([0]), np.array([1]), source="raw")


def test_what_disk_and_memory_cannot_hold(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with StoreWriter(tmp_path, StoreOptions()) as writer:
        message = r"raw: \d+ vertices: needs .* GiB of memory, and .* GiB are available"
        with pytest.raises(GraphError, match=message):
            writer.set_num_vertices(10**15, source="raw")
        writer.set_num_vertices(1000, source="raw")
        message = "raw: 65536 features of 1000 vertices: needs 250.0 MiB of disk, and 1.0 MiB are"
        with pytest.raises(GraphError, match=message):
            writer.write_features([], num_features=65_536, dtype="float32", source="raw")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "dtype"), [(1e6, "float16"), (0.5, "uint8"), (256, "uint8"), (3.4e38, "bfloat16")]
)
def test_values_that_the_type_cannot_hold(tmp_path, value, dtype):
    features = np.ones((3, 2), np.float32)
    features[2, 1] = value
    message = f"^dataset.feature_dtype={dtype}: raw: feature 1 of vertex 2: expected a value of"
    with pytest.raises(ConfigError, match=message):
        write(tmp_path / "store", features=features, options=StoreOptions(feature_dtype=dtype))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"self_loops": "drop"}, "dataset.self_loops=drop: allowed are keep, remove, add"),
        ({"feature_dtype": "float64"}, "dataset.feature_dtype=float64: allowed are float32"),
        ({"feature_dtype": "uint8", "normalize_features": True}, "dataset.feature_dtype=uint8"),
        ({"memory_bytes": 0}, "dataset.memory_bytes=0"),
        ({"memory_bytes": 2**60}, "dataset.memory_bytes=1152921504606846976"),
    ],
)
def test_bad_options(option, message):
    with pytest.raises(ConfigError, match=message):
        StoreOptions(**option)


@contextmanager
def file_size_limit():
    """Files may not grow beyond 64 KiB, which fails like a full disk.

    No fixture: a report of the tests that goes to a file is one, too.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def write_much(path, part):
    many = np.zeros(100_000, np.int64)
    with new_folder(path) as folder, StoreWriter(folder, StoreOptions()) as writer:
        writer.set_num_vertices(100_000, source="raw")
        if part == "edges":
            writer.add_edges(many, many + 1, source="raw")
            writer.build_topology()
        rows = np.ones((100_000, 8), np.float32)
        writer.write_features([rows], num_features=8, dtype="float32", source="raw")


@pytest.mark.parametrize("part", ["edges", "features"])
def test_disk_full(tmp_path, leftovers, part):
    path = tmp_path / "stores" / "big"
    refused = pytest.raises(GraphError, match=r"big: cannot be written, .* MiB free\)")
    with file_size_limit(), refused:
        write_much(path, part)
    assert not path.exists()
    assert leftovers(path) == []
