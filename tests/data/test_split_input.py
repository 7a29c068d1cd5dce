import numpy as np
import pytest
import torch

from gnnscale.core.errors import GraphError
from gnnscale.data import from_arrays, random_split
from gnnscale.data.split_input import SplitInput, with_random_split


def test_splits_in_other_forms() -> None:
    labels = np.arange(40) % 2
    x = np.ones((40, 1), np.float32)
    graph = from_arrays(([0], [1]), x, labels, split="random")
    assert [len(p) for p in (graph.train_idx, graph.valid_idx, graph.test_idx)] == [24, 8, 8]
    files = random_split(labels, (0.6, 0.2), seed=0)
    np.testing.assert_array_equal(graph.train_idx, np.sort(files[0]))
    ogb = {"train": torch.tensor([[2], [0]]), "valid": np.array([1]), "test": [3]}
    for keys in (ogb, {"train": [0, 2], "val": [1], "test": [3]}):
        graph = from_arrays(([0], [1]), x, labels, split=keys)
        assert (graph.train_idx.tolist(), graph.valid_idx.tolist()) == ([0, 2], [1])
        assert graph.test_idx.tolist() == [3]
    masks = np.zeros((40, 2), bool)
    masks[:3, 0], masks[5, 1] = True, True
    for column, expected in ((0, [0, 1, 2]), (1, [5])):
        graph = from_arrays(([0], [1]), x, labels, train_idx=masks, mask=column, test_idx=[9])
        assert (graph.train_idx.tolist(), graph.test_idx.tolist()) == (expected, [9])


def test_a_random_split_of_labeled_edges_keeps_pairs_together() -> None:
    src, dst = np.arange(30) % 5, (np.arange(30) + 1) % 5
    graph = from_arrays((src, dst), np.ones((5, 1)), edge_labels=np.arange(30) % 2, split="random")
    assert graph.edge_labels is not None
    split = graph.edge_labels.split
    parts = [set(src[rows]) for rows in (split.train_idx, split.valid_idx, split.test_idx)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 5
    assert len(graph.train_idx) == 0


def test_a_graph_gets_a_random_split_instead_of_its_own() -> None:
    graph = from_arrays(([0], [1]), np.ones((10, 1)), [0, 1] * 5, train_idx=range(10))
    changed = with_random_split(graph)
    parts = changed.train_idx, changed.valid_idx, changed.test_idx
    assert [len(part) for part in parts] == [6, 2, 2]
    assert sorted(np.concatenate(parts)) == [*range(10)]
    ends = np.arange(30) % 5, (np.arange(30) + 1) % 5
    given = {"edge_labels": np.arange(30) % 2, "edge_split": ([0], None, None)}
    edges = from_arrays(ends, np.ones((5, 1)), **given)
    drawn = from_arrays(ends, np.ones((5, 1)), edge_labels=given["edge_labels"], split="random")
    rows = with_random_split(edges).edge_labels.split.train_idx
    assert rows.tolist() == drawn.edge_labels.split.train_idx.tolist()
    with pytest.raises(GraphError, match="split='random': no vertex has a label"):
        with_random_split(from_arrays(([0], [1]), np.ones((10, 1))))


def test_fields_are_named_as_the_user_names_them() -> None:
    fields = {"val_idx": [1], "train_mask": [True, False]}
    given = SplitInput.of_fields(fields, "data.{}", "mine")
    assert given.names == ("data.train_mask", "data.val_idx", "data.test_mask")
    assert given.are_masks == (True, False, True)
    assert SplitInput.of_fields({}, "{}", "mine").source.names[1] == "val_mask"
    with pytest.raises(GraphError, match=r"^mine: expected one of val_mask and val_idx, got both$"):
        SplitInput.of_fields({"val_idx": [1], "val_mask": [False]}, "{}", "mine")
