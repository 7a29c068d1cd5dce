"""Partitions of graphs with types: every partitioner, hops, cuts, identity, and stores of parts."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line
from printed import on_console
from typed_graphs import SCHEMAS, Lists, random_lists, shop, typed_graph

from gnnscale.backend.feature_loading import typed_edge_attr
from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.data.storage.store_verification import verify_store
from gnnscale.graph import FeatureMatrix, Graph, GraphSchema, Split, TypedFeatures
from gnnscale.partition import (
    P3,
    EdgeCut,
    FromFile,
    Hash,
    Hierarchical,
    Metis,
    PaGraph,
    Partition,
    PartitionerConfig,
    Random,
    Range,
    make_partition,
    partition_path,
    read_partition,
    write_parts,
    write_rows,
)
from gnnscale.partition.base import UNREACHED, problem_of
from gnnscale.partition.edge_cut.multilevel import balanced_types
from gnnscale.partition.metrics import cut_matrix
from gnnscale.report.partition import draw, print_partition
from gnnscale.run.typed_inputs import degree_rows
from gnnscale.sampling import TypedSampler

SIZES = {"num_parts": 4, "num_hops": 2}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    path = tmp_path_factory.mktemp("shop") / "store"
    shop().save(path)
    return Graph.open(path)


def made(config: PartitionerConfig, graph: Graph, num_parts: int = 4) -> Partition:
    path = make_partition(config, graph, num_parts=num_parts, num_hops=2, num_threads=2)
    return read_partition(path, graph)


def labeled(schema: GraphSchema, lists: Lists, train: list[int]) -> Graph:
    labels = np.zeros(schema.num_vertices, np.int64)
    split = Split(train_idx=np.array(train))
    return replace(typed_graph(schema, lists), labels=labels, num_classes=1, split=split)


def edges_of(graph: Graph, lists: Lists) -> list[tuple[int, int]]:
    return [(u, v) for (_, v), sources in lists.items() for u in sources]


@pytest.mark.parametrize(
    "config",
    [
        *(Hash(), Range(), Random(), PaGraph(), P3()),
        pytest.param(Metis(), marks=pytest.mark.long),
        pytest.param(EdgeCut(), marks=pytest.mark.long),
        pytest.param(Hierarchical(nvlink="siton"), marks=pytest.mark.long),
    ],
)
def test_every_partitioner(config: PartitionerConfig, stored: Graph) -> None:
    partition = made(config, stored)
    parts, figures = partition.parts, partition.figures
    assert problem_of(parts, stored) is None
    assert made(config, stored).content == partition.content
    if parts.owner is None:
        assert parts.columns == ((0, 1), (1, 2), (2, 3), (3, 5))  # of items, the widest type
        return
    assert sum(sum(row) for row in figures.cut or ()) == stored.num_edges
    assert sum(part.num_train or 0 for part in figures.parts) == len(stored.train_idx)
    owners = [parts.owner[stored.schema.vertices(number)] for number in range(3)]
    counts = [np.bincount(owner, minlength=4) for owner in owners]
    if isinstance(config, Range | Metis | EdgeCut):
        # Nine tags, 600 users and 200 items, each divided by its type.
        assert all(
            count.max() <= max(np.ceil(count.mean()), 1.05 * count.mean()) + 1e-9
            for count in counts
        )
    text = on_console(print_partition, partition, graph="shop", types=stored.types, width=120)
    rows = text[text.index("vertices owned, by type") :].replace("│", " ").splitlines()
    assert ["2", *(f"{count[2]}" for count in counts)] in [row.split() for row in rows]
    assert draw(partition, graph="shop").startswith("<svg")


def test_owners_of_a_file(stored: Graph, tmp_path: Path) -> None:
    owners = np.arange(stored.num_vertices) % 4
    np.save(tmp_path / "owners.npy", owners)
    partition = made(FromFile(owners=str(tmp_path / "owners.npy")), stored)
    assert partition.parts.owner is not None
    assert partition.parts.owner.tolist() == owners.tolist()


@settings(max_examples=40, deadline=None)
@given(SCHEMAS, st.integers(0, 99), st.integers(1, 3), st.integers(1, 3))
def test_hops_and_cuts_are_those_of_all_edges(schema, seed, num_parts, num_hops) -> None:
    generator = np.random.default_rng(seed)
    lists = random_lists(schema, generator, 1.5)
    num_parts = min(num_parts, schema.num_vertices)
    num_train = int(generator.integers(num_parts, schema.num_vertices + 1))
    train = np.sort(generator.permutation(schema.num_vertices)[:num_train]).tolist()
    graph = labeled(schema, lists, train)
    view, edges = graph.without_types(), edges_of(graph, lists)
    parts = PaGraph().assign(view, num_parts=num_parts, num_hops=num_hops, num_threads=1)
    assert parts.owner is not None
    assert parts.hops is not None
    assert problem_of(parts, graph) is None
    for part in range(num_parts):
        hops = dict.fromkeys((v for v in train if parts.owner[v] == part), 0)
        for hop in range(1, num_hops + 1):
            hops |= {u: hop for u, v in edges if hops.get(v) == hop - 1 and u not in hops}
        expected = [hops.get(v, UNREACHED) for v in range(schema.num_vertices)]
        assert parts.hops[part].tolist() == expected
    owner = (np.arange(schema.num_vertices) % num_parts).astype(np.int16)
    expected_cut = np.zeros((num_parts, num_parts), np.int64)
    for u, v in edges:
        expected_cut[owner[u], owner[v]] += 1
    assert cut_matrix(view, owner, num_parts).tolist() == expected_cut.tolist()


def test_a_partition_is_of_one_typed_graph(stored: Graph, tmp_path: Path) -> None:
    """Equal arrays with other types are another graph, in memory as well as stored."""
    config = Hash(store=str(tmp_path / "mine"))
    path = make_partition(config, stored, **SIZES, num_threads=1)
    with pytest.raises(GraphError, match="is a partition of shop"):
        make_partition(config, shop(500), **SIZES, num_threads=1)
    with pytest.raises(GraphError, match="is a partition of shop"):
        read_partition(path, shop(500))
    two, one = (
        GraphSchema.of(sizes, [(first, "to", first)])
        for first, sizes in (("a", {"a": 4, "b": 0}), ("a", {"a": 4}))
    )
    lists: Lists = {(0, 1): [0]}
    graphs = [labeled(schema, lists, [0, 1]) for schema in (two, one)]
    paths = [partition_path(Hash(), graph, num_parts=2, num_hops=2) for graph in graphs]
    assert paths[0] != paths[1]
    # One type of each is no type: a run of a model for types divides the same graph.
    plain = graphs[1].without_types()
    untyped = replace(plain, features=np.zeros((4, 0), np.float32))
    assert partition_path(Hash(), untyped, num_parts=2, num_hops=2) == paths[1]


def test_the_five_largest_types_are_balanced() -> None:
    sizes = {f"t{number}": size for number, size in enumerate([3, 9, 1, 9, 4, 8, 2])}
    schema = GraphSchema.of(sizes, [("t0", "to", "t1")])
    graph = labeled(schema, {}, [0])
    numbers = [0, 1, 3, 4, 5]
    assert balanced_types(graph) == [schema.vertices(number) for number in numbers]
    assert balanced_types(graph.without_types()) == []
    assert balanced_types(labeled(GraphSchema.homogeneous(3), {}, [0])) == []


def test_a_part_has_all_that_its_batches_read(stored: Graph) -> None:
    partition = made(PaGraph(), stored, 3)
    folder = write_parts(partition, stored)
    features = stored.features
    assert isinstance(features, TypedFeatures)
    for index in range(3):
        assert not [check for check in verify_store(folder / str(index)) if check.problem]
        part = Graph.open(folder / str(index))
        assert part.schema == stored.schema
        assert part.num_edges < stored.num_edges
        assert isinstance(part.features, TypedFeatures)
        for fanouts in ([3, 2], [-1, -1]):
            batches = [
                TypedSampler(graph, fanouts=fanouts, seed=5).sample(part.train_idx[:20], 1)
                for graph in (stored, part)
            ]
            whole, own = batches
            for left, right in zip(whole.blocks, own.blocks, strict=True):
                for one, other in zip(left.relations, right.relations, strict=True):
                    assert np.array_equal(one.indptr, other.indptr)
                    assert np.array_equal(one.indices, other.indices)
            for number, matrix in enumerate(features.matrices):
                ids = whole.vertices(number)
                assert np.array_equal(ids, own.vertices(number))
                if matrix is not None:
                    rows = ids - stored.schema.vertices(number).start
                    copy = part.features.matrices[number]
                    assert copy is not None
                    assert np.array_equal(copy.rows[rows], matrix.rows[rows])
        merged, full = part.without_types(), stored.without_types()
        assert merged.degrees is not None
        assert partition.parts.hops is not None
        present = partition.parts.hops[index] != UNREACHED
        assert merged.degrees[present].tolist() == np.diff(full.indptr)[present].tolist()
    with one_line("without_features=degrees", "got one part", error=GraphError):
        degree_rows(part, 0)


def test_stores_that_are_refused(stored: Graph) -> None:
    with one_line("part_stores=rows", "without types", "part_stores=true", error=GraphError):
        write_rows(made(Hash(), stored), stored)
    with pytest.raises(ConfigError, match="part_stores=true: expected parts with a halo"):
        write_parts(made(Hash(), stored), stored)
    folder = write_parts(made(PaGraph(), stored, 2), stored)
    file = folder / "0" / "meta.json"
    meta = json.loads(file.read_text())
    meta["part"]["rows_of"] = meta["part"]["of"]
    file.write_text(json.dumps(meta))
    with pytest.raises(GraphError, match="rows of a graph with types are not divided"):
        Graph.open(folder / "0")


def test_a_part_has_the_features_of_its_edges(tmp_path: Path) -> None:
    graph = shop(60, 30)
    rows = np.arange(graph.num_edges, dtype=np.uint32)
    matrix = FeatureMatrix(rows=rows[:, None].astype(np.float32), dtype="float32", width=1)
    edges = replace(graph.edges, rows=rows, by_type=TypedFeatures([matrix, matrix, None, None]))
    replace(graph, edges=edges).save(tmp_path / "store")
    stored = Graph.open(tmp_path / "store")
    folder = write_parts(made(PaGraph(), stored, 3), stored)
    for index in range(3):
        assert not [check for check in verify_store(folder / str(index)) if check.problem]
        part = Graph.open(folder / str(index))
        assert part.num_edges < stored.num_edges
        batches = [
            TypedSampler(of, fanouts=[3, -1], seed=5).sample(part.train_idx[:5], 1)
            for of in (stored, part)
        ]
        for left, right in zip(*(batch.blocks for batch in batches), strict=True):
            whole = typed_edge_attr(stored, left, num_threads=1)
            own = typed_edge_attr(part, right, num_threads=1)
            for one, other in zip(whole, own, strict=True):
                assert np.array_equal(one, other)
