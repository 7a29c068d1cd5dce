"""Rows of several vertex types, each expected in its own buffer."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from late_source import NUM_ROWS, ROWS, LateSource, belady, ids
from typed_graphs import typed_graph

from gnnscale.features import HostFeatures
from gnnscale.features.tiered.policies import TierPlanner
from gnnscale.features.tiered.sizing import SampledBatches
from gnnscale.features.tiered.store import WorkerBuffer
from gnnscale.features.typed import TypedStore
from gnnscale.features.typed_tier import TypedTieredStore, sample_by_type
from gnnscale.graph import GraphSchema
from gnnscale.sampling import TypedMiniBatch, TypedSampler

#: Types without vertices, with a reader, without rows, in memory, and with another reader.
COUNTS = {"none": 0, "read": NUM_ROWS, "bare": 3, "host": NUM_ROWS, "late": NUM_ROWS}
SCHEMA = GraphSchema.of(COUNTS, [("read", "to", "late")])
READ, HOST, LATE = 1, 3, 4


def store_of(windows: dict[int, int]) -> TypedTieredStore:
    readers = {}
    for number, window in windows.items():
        planner = TierPlanner(belady(4, window), num_kept=4, num_staged=6, window=window)
        readers[number] = WorkerBuffer(LateSource(), planner, window=window, ahead=2)
    inner = [None, None, None, HostFeatures(ROWS, "float32"), None]
    return TypedTieredStore(TypedStore(SCHEMA, inner), readers)


def batch_of(vertices: list[int]) -> TypedMiniBatch:
    """Return a mini-batch of these seeds alone, type by type."""
    return TypedSampler(typed_graph(SCHEMA, {}), fanouts=[0]).sample(ids(*vertices), 0)


def test_a_sample_is_divided_by_type() -> None:
    sample = SampledBatches(vertices=[ids(3, 1, 13, 27), ids(2, 30)], num_bytes=90, asked=0.5)
    read, late = sample_by_type(sample, SCHEMA, [READ, LATE])
    assert [rows.tolist() for rows in read.vertices] == [[3, 1], [2]]
    assert [rows.tolist() for rows in late.vertices] == [[0], [3]]
    # Mini-batches take the memory of both, by 3 of 5 and 2 of 5 rows; the bare vertex has none.
    assert (read.num_bytes, late.num_bytes) == (54, 36)
    assert (read.asked, late.asked) == (0.5 * 3 / 6, 0.5 * 2 / 6)


vertices_of_step = st.lists(st.integers(0, SCHEMA.num_vertices - 1), min_size=1, unique=True)


@pytest.mark.long
@settings(max_examples=20, deadline=None)
@given(
    steps=st.lists(st.none() | vertices_of_step, min_size=1, max_size=10),
    windows=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_each_type_has_its_rows_whatever_others_look_ahead(steps, windows) -> None:
    store = store_of(dict(zip((READ, LATE), windows, strict=True)))
    assert store.rows.lead == max(windows) + 2
    batches = [None if each is None else batch_of(each) for each in steps]
    for step in range(len(steps) + store.rows.lead):
        if step < len(steps):
            expected = batches[step]
            store.rows.expect(None if expected is None else expected.input_vertices)
        elif step == len(steps):
            store.rows.end()
        batch = batches[step - store.rows.lead] if step >= store.rows.lead else None
        if batch is None:
            continue
        rehearsed = batch_of(batch.input_vertices.tolist())  # equal vertices of another step
        for each, is_expected in ((rehearsed, False), (batch, True)):
            parts, traffic = store.gather_types(each, dtype=torch.float32, num_threads=1)
            by_type = SCHEMA.split(batch.input_vertices)
            for number in (READ, HOST, LATE):
                assert np.array_equal(parts[number].numpy(), ROWS[by_type[number]])
            assert [tuple(parts[number].shape) for number in (0, 2)] == [
                (0, 0),
                (len(by_type[2]), 0),
            ]
            hits = [traffic[number].tier.hits for number in (READ, LATE)]
            counts = sum(hits) + sum(traffic[number].tier.misses for number in (READ, LATE))
            assert counts == len(by_type[READ]) + len(by_type[LATE])
            assert is_expected or not any(hits)
    store.rows.close()
    assert all(reader.source.closed for reader in store.rows._readers.values())
