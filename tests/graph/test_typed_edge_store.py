"""Features of edges in stores of graphs with types: what does not fit is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale.core import GraphError
from gnnscale.core.artifact import write_array
from gnnscale.data.storage.store_verification import verify_store
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.graph import Graph

BUYS, OF = ("user", "buys", "item"), ("item", "of", "user")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two users, an item; the edges of ``buys`` have two features."""
    graph = from_typed_arrays(
        {"user": np.ones((2, 1)), "item": np.ones((1, 1))},
        {BUYS: ([0, 1], [0, 0]), OF: ([0], [1])},
        ("user", [0, 1]),
        split={"train": [0]},
        edge_features={BUYS: [[1, 2], [3, 4]]},
        edge_labels=(BUYS, [0, 1]),
        edge_split=([0], [1], []),
    )
    graph.save(tmp_path / "store")
    return tmp_path / "store"


def change(store: Path, arrays: dict[str, Any] | None = None, **types: Any) -> None:
    meta = json.loads((store / "meta.json").read_text())
    meta["types"] |= types
    for name, array in (arrays or {}).items():
        meta["arrays"][name] = vars(write_array(store / f"{name}.npy", array))
    (store / "meta.json").write_text(json.dumps(meta))


ENTRY = {"file": 0, "num_features": 2, "feature_dtype": "float32"}


@pytest.mark.parametrize(
    ("types", "words"),
    [
        ({"edge_features": [ENTRY]}, "1 of 2 edge types"),
        ({"edge_features": [ENTRY, ENTRY | {"file": 1}]}, "arrays: expected"),
        ({"edge_features": [ENTRY | {"file": 1}, None]}, "file 1 is of other features"),
        ({"edge_features": [ENTRY | {"file": 2}, None]}, "file 2 is of other features"),
        ({"edge_features": [ENTRY, ENTRY | {"num_features": 3}]}, "file 0 is of other features"),
        ({"edge_features": [ENTRY | {"num_features": 3}, None]}, r"expected float32\[n, 3\]"),
        ({"edge_features": [ENTRY | {"feature_dtype": "int8"}, None]}, "int8"),
        ({"edge_features": []}, "arrays: expected"),
        ({"labeled_edges": 2}, "labeled_edges: 2, there are 2 edge types"),
    ],
)
def test_entries_that_do_not_fit(store: Path, types: Any, words: str) -> None:
    change(store, **types)
    with pytest.raises(GraphError, match=words):
        Graph.open(store)


def test_arrays_that_do_not_fit(store: Path) -> None:
    change(store, {"edge_features-0": np.empty((0, 2), np.float32)})
    with pytest.raises(GraphError, match=r"edge_features-0.npy: 0 rows for edges of user-buys-it"):
        Graph.open(store)
    change(store, {"edge_features-0": np.ones((3, 2), np.float32)})
    with pytest.raises(GraphError, match=r"edge_features-0.npy: 3 rows of 2 edges"):
        Graph.open(store)


def test_damaged_values_are_found(store: Path) -> None:
    """The list of user 1 comes first, whose edge type has no features: its row may be any."""
    rows = np.array([9, 0, 2], np.uint32)
    change(store, {"edge_rows": rows, "edge_features-0": np.float32([[1, np.inf], [0, 0]])})
    problems = [check.problem for check in verify_store(store) if check.problem]
    assert len(problems) == 2
    assert "row 2 of edge 2, of user-buys-item, is out of range, there are 2 rows" in problems[0]
    assert "feature 1 of row 0 is not finite" in problems[1]
