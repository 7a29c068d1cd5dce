"""Random splits: shares of classes, groups in one part, and warnings of rare classes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line

from gnnscale.core import GraphError
from gnnscale.data import Arrays, Tables, random_edge_split, random_split

class_lists = st.lists(st.integers(-1, 5), min_size=1, max_size=200)
fractions = st.tuples(st.floats(0.05, 0.6), st.floats(0.05, 0.35))


def test_random_split() -> None:
    labels = np.array([0, -1, 1, 0, 1, 1, -1, 0, 0, 1, 0, 1])
    parts = random_split(labels, (0.6, 0.2), seed=3)
    assert list(map(len, parts)) == [6, 2, 2]
    assert sorted(np.concatenate(parts)) == [0, 2, 3, 4, 5, 7, 8, 9, 10, 11]
    again = random_split(labels, (0.6, 0.2), seed=3)
    assert all(np.array_equal(*pair) for pair in zip(parts, again, strict=True))
    other = random_split(labels, (0.6, 0.2), seed=4)
    assert not all(np.array_equal(*pair) for pair in zip(parts, other, strict=True))
    assert len(random_split(np.zeros((5, 2)), (0.4, 0.2), seed=0)[0]) == 2
    # One known target is enough.
    targets = np.array([[0, np.nan], [np.nan, 1], [np.nan, np.nan], [1, 2], [3, 4]], np.float32)
    assert sorted(np.concatenate(random_split(targets, (0.5, 0.25), seed=0))) == [0, 1, 3, 4]


@settings(max_examples=60)
@given(labels=class_lists, shares=fractions, seed=st.integers(0, 9))
def test_each_part_has_its_share_of_every_class(
    labels: list[int], shares: tuple[float, float], seed: int
) -> None:
    classes = np.array(labels)
    parts = random_split(classes, shares, seed=seed)
    assert sorted(np.concatenate(parts)) == np.flatnonzero(classes >= 0).tolist()
    known = (classes >= 0).sum()
    for part, share in zip(parts, (*shares, 1 - sum(shares)), strict=True):
        assert abs(len(part) - share * known) < 1 + 1e-6
        for number in range(6):
            exact = share * (classes == number).sum()
            assert abs((classes[part] == number).sum() - exact) < 1 + 1e-6


def test_booleans_are_two_classes() -> None:
    labels = np.arange(50) < 10
    parts = random_split(labels, (0.6, 0.2), seed=2)
    assert [np.count_nonzero(labels[part]) for part in parts] == [6, 2, 2]


def test_whole_shares_are_exact() -> None:
    labels = np.repeat([0, 1, 2], [50, 10, 5])
    for seed in range(5):
        parts = random_split(labels, (0.6, 0.2), seed=seed)
        counts = [np.bincount(labels[part]).tolist() for part in parts]
        assert counts == [[30, 6, 3], [10, 2, 1], [10, 2, 1]]


@settings(max_examples=60)
@given(
    rows=st.lists(st.tuples(st.integers(-1, 2), st.integers(-1, 8)), min_size=1, max_size=120),
    seed=st.integers(0, 9),
)
def test_groups_are_in_one_part(rows: list[tuple[int, int]], seed: int) -> None:
    labels, groups = np.array(rows).T
    parts = random_split(labels, (0.5, 0.25), seed=seed, groups=groups)
    assert sorted(np.concatenate(parts)) == np.flatnonzero(labels >= 0).tolist()
    seen = [set(groups[part].tolist()) - {-1} for part in parts]  # -1 is a group of its own
    assert sum(map(len, seen)) == len(set.union(*seen))
    known = labels >= 0
    sizes = np.unique(groups[known & (groups >= 0)], return_counts=True)[1]
    largest = max(sizes, default=1)
    for part, share in zip(parts, (0.5, 0.25, 0.25), strict=True):
        assert abs(len(part) - share * known.sum()) < largest + 1


def test_small_groups_fill_up_what_large_ones_leave(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    groups = np.array(["whale"] * 50 + [f"fish {number}" for number in range(50)])
    labels = np.arange(100) % 2
    parts = random_split(labels, (0.6, 0.2), seed=0, groups=groups)
    assert list(map(len, parts)) == [60, 20, 20]
    assert "train 60 of 11 groups, valid 20 of 20 groups, test 20 of 20 groups" in caplog.text


def test_texts_numbers_and_unknown_groups() -> None:
    labels = np.zeros(6, np.int64)
    texts = np.array(["a", "b", "a", "b", "c", "c"], object)
    numbers = np.array([0.5, 2, 0.5, 2, 7, 7])
    parts = random_split(labels, (0.4, 0.3), seed=1, groups=texts)
    same = random_split(labels, (0.4, 0.3), seed=1, groups=numbers)
    assert [part.tolist() for part in parts] == [part.tolist() for part in same]
    alone = random_split(labels, (0.5, 0.25), seed=1, groups=np.full(6, np.nan))
    assert sorted(map(len, alone)) == [1, 2, 3]
    with one_line("groups: expected numbers or texts [6]", error=GraphError):
        random_split(labels, (0.4, 0.3), seed=1, groups=numbers[:5])


pair_lists = st.lists(st.tuples(*2 * [st.integers(0, 6)]), min_size=4, max_size=60)


@settings(max_examples=30)
@given(edges=pair_lists, seed=st.integers(0, 9), data=st.data())
def test_edges_of_a_pair_are_in_one_part(edges: Any, seed: int, data: st.DataObject) -> None:
    each_label = st.lists(st.integers(-1, 2), min_size=len(edges), max_size=len(edges))
    labels = np.array(data.draw(each_label))
    parts = random_edge_split(labels, np.array(edges), (0.5, 0.25), seed=seed)
    assert sorted(np.concatenate(parts)) == np.flatnonzero(labels >= 0).tolist()
    pairs = [{tuple(sorted(edges[row])) for row in part} for part in parts]
    assert sum(map(len, pairs)) == len(set.union(*pairs))
    # Without copies it is the split of each edge by itself.
    labelled = [tuple(sorted(edges[row])) for row in np.flatnonzero(labels >= 0)]
    if len(set(labelled)) == len(labelled):
        alone = random_split(labels, (0.5, 0.25), seed=seed)
        assert all(np.array_equal(*both) for both in zip(parts, alone, strict=True))


def test_fractions_of_edges_hold() -> None:
    generator = np.random.default_rng(0)
    edges = generator.integers(60, size=(20_000, 2))  # eleven between two vertices
    for labels in (np.zeros(20_000), np.arange(20_000) % 50 // 49):  # targets; 2 % of a class
        parts = random_edge_split(labels, edges, (0.6, 0.1), seed=0)
        assert np.allclose([len(part) / 20_000 for part in parts], (0.6, 0.1, 0.3), atol=0.001)


def test_classes_with_few_vertices_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = ["id,label,age", *(f"{v},{'fraud' if v < 20 else 'good'},{v}" for v in range(200))]
    (tmp_path / "vertices.csv").write_text("\n".join(rows))
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    Tables(name="t", raw=str(tmp_path), split="random", features=["age"]).open()
    (record,) = (each for each in caplog.records if "fewer than 10" in each.message)
    assert "class 'fraud' (train 12, valid 4, test 4);" in record.message
    assert "good" not in record.message
    caplog.clear()
    random_split(np.arange(300) % 3, (0.6, 0.2), seed=0)  # twenty of each
    random_split(np.arange(30) / 7, (0.6, 0.2), seed=0)  # targets have no classes
    assert not caplog.records
    random_split(np.arange(30) % 10, (0.6, 0.2), seed=0)
    assert caplog.records[0].message.count("(train") == 6
    assert "and 4 more" in caplog.text


def test_groups_of_arrays_and_of_tables(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    groups, x = np.arange(60) // 3, np.eye(60, 4, dtype=np.float32)
    arrays = {"edge_index": np.array([[0, 1], [1, 2]]), "x": x, "y": np.arange(60) % 2}
    np.savez(tmp_path / "g.npz", **arrays, groups=groups)
    graph = Arrays(name="g", raw=str(tmp_path / "g.npz"), split="random").open()
    parts = graph.train_idx, graph.valid_idx, graph.test_idx
    assert [len(np.unique(groups[part])) for part in parts] == [12, 4, 4]
    np.savez(tmp_path / "g.npz", **arrays, groups=groups[:9])
    with one_line("groups.npy: 9 groups for 60 vertices", error=GraphError):
        Arrays(name="g", raw=str(tmp_path / "g.npz"), split="random").open()

    rows = ["id,label,age,bank", *(f"{v},{v % 2},{v},0{v // 3}" for v in range(59)), "59,1,1,"]
    (tmp_path / "vertices.csv").write_text("\n".join(rows))
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    tables = Tables(name="t", raw=str(tmp_path), split="random", split_group="bank").open()
    assert tables.num_features == 1  # the groups are no feature
    banks = [np.unique(np.minimum(part, 58) // 3) for part in (tables.train_idx, tables.valid_idx)]
    assert not len(np.intersect1d(*banks)) or 59 in (*tables.train_idx, *tables.valid_idx)
    assert "random split by groups" in caplog.text
    for options in ({}, {"split": "random", "label": None, "edge_label": "a"}):
        with one_line("dataset.split_group=bank: expected a column besides"):
            Tables(name="t", raw=str(tmp_path), split_group="bank", **options)
    with one_line("dataset.split_group=label: expected a column besides"):
        Tables(name="t", raw=str(tmp_path), split="random", split_group="label")


def test_a_store_of_an_earlier_rule_is_used_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    arrays = {"edge_index": np.array([[0, 1], [1, 2]]), "x": np.eye(60, 4, dtype=np.float32)}
    np.savez(tmp_path / "g.npz", **arrays, y=np.arange(60) % 2)
    dataset = Arrays(name="g", raw=str(tmp_path / "g.npz"), split="random")
    written = dataset.prepare()
    # As an earlier release wrote it: under another name, without the entry.
    identity = {key: value for key, value in dataset._identity().items() if key != "stratified"}
    earlier = written.rename(dataset._directory(identity))
    meta = json.loads((earlier / "meta.json").read_text())
    del meta["options"]["stratified"]
    (earlier / "meta.json").write_text(json.dumps(meta))
    caplog.clear()
    assert dataset.prepare() == earlier
    assert "its random split is of an earlier release" in caplog.text
    named = Arrays(name="g", raw=dataset.raw, split="random", store=str(earlier))
    assert named.prepare() == earlier
    assert dataset.prepare(force=True) == written
    caplog.clear()
    assert dataset.prepare() == written
    assert not caplog.records
