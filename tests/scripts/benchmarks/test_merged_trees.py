"""Merged and disjoint trees of a small shop."""

from argparse import Namespace
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.cases import merged_trees as script
from timed_shop import timed_shop

from gnnscale.graph import Split


@pytest.mark.parametrize("tolerance", [1e-5, -1.0])
def test_outputs_are_compared(monkeypatch, tolerance) -> None:
    shop = timed_shop(num_users=30, num_items=12, per_user=6)
    rows = replace(shop.rows, split=Split(valid_idx=np.arange(len(shop.rows.vertices))))
    monkeypatch.setattr(script, "opened", lambda options: replace(shop, rows=rows))
    monkeypatch.setattr(script, "_TOLERANCE", tolerance)
    found = script.run(Namespace(task="own", batch_size=8, threads=1, rounds=1))
    assert bool(found["missed"]) == (tolerance < 0)
    passes = found["passes"]
    for name in script.FANOUTS:
        merged, disjoint = passes[f"{name}: merged"], passes[f"{name}: disjoint"]
        assert merged["vertices"] < disjoint["vertices"]
        assert merged["edges"] <= disjoint["edges"]
