from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from one_line import one_line

from gnnscale.core.errors import ConfigError
from gnnscale.distributed.process_group import SINGLE_PROCESS
from gnnscale.features import HostFeaturesConfig, SharedFeaturesConfig
from gnnscale.features.tiered.sizing import Horizon, Misses, SampledBatches, TierSizes
from gnnscale.training.build import sharded_features as shared

#: Of 40 rows, over ten steps.
HORIZON = Horizon(window=2, priority=np.zeros(40, np.int32), num_steps=10, num_threads=1)


def machines(parts: Sequence[int], **options: Any) -> list[Any]:
    """One process a machine; the machines are called a, b, and so on."""
    common = {"local_rank": 0, "num_parts": len(parts), "partition": "p", "content": "c"}
    return [
        shared._MachineStore(
            machine="abc"[rank], path=f"/rows-{rank}", part=part, **common | options
        )
        for rank, part in enumerate(parts)
    ]


def second(**other: Any) -> list[Any]:
    """Two machines, of which the second has something else."""
    first, last = machines([0, 1])
    return [first, replace(last, **other)]


def test_each_machine_has_another_part() -> None:
    shared.check_parts(machines([0, 1]))
    shared.check_parts(machines([2, 0, 1]))
    # Two processes of each of two machines.
    two = machines([1, 0], num_parts=2)
    shared.check_parts([each for one in two for each in (one, replace(one, local_rank=1))])


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (
            machines([0, 0]),
            "expected another part on each machine, got part 0 in process 0 on a and in process 1 "
            "on b; set dataset.store on each machine",
        ),
        (
            machines([0, 2], num_parts=3),
            "expected one machine for each of 3 parts, got none for part 1; set dataset.store on",
        ),
        (second(partition="q"), "got partition p in /rows-0, process 0 on a, and q in /rows-1, p"),
        (second(num_parts=3), "got number of parts 2 in /rows-0, process 0 on a, and 3 in /rows-1"),
        (second(content="d"), "got topology, labels and owners c in /rows-0, process 0 on a, and"),
    ],
)
def test_other_parts_are_refused(found, line) -> None:
    with one_line(line, begins="features=shared: expected "):
        shared.check_parts(found)


def test_one_machine_divides_nothing(tiny_graph) -> None:
    assert shared.open_rows(HostFeaturesConfig(), tiny_graph, SINGLE_PROCESS) is None
    with pytest.raises(ConfigError, match=r"^features=shared: expected a run on several "):
        shared.open_rows(SharedFeaturesConfig(), tiny_graph, SINGLE_PROCESS)


class Rows:
    """Rows that all machines have between them, in place of a network."""

    dtype_name = "uint8"
    num_rows, width, num_features, row_bytes = 4, 3, 3, 3

    def read(self, vertices: Any) -> Any:
        return np.arange(12, dtype=np.uint8).reshape(4, 3)[vertices]


def test_what_the_network_costs_follows_from_the_rows_that_memory_lacks() -> None:
    """Of mini-batches of 4 and 6 rows, the usual one misses 2."""
    misses = Misses(num_rows=4, mean=2.0, when_full=2, vertices=np.array([1, 3]))
    sizes = TierSizes(num_kept=0, num_staged=8, window=2, misses=misses)
    sample = SampledBatches(vertices=[np.arange(4), np.arange(6)], num_bytes=0)
    assert shared._miss_rate(sizes, sample) == pytest.approx(0.4)
    nothing = replace(
        sizes, misses=Misses(num_rows=0, mean=0.0, when_full=0, vertices=np.array([]))
    )
    assert shared._miss_rate(nothing, replace(sample, vertices=[])) == 0
    rows: Any = SimpleNamespace(seconds_per_row=lambda: 0.5)
    values = {"row_misses": 0.4, "own_share": 0.25, "own_s": 0.1}
    effect = shared._effect(rows, values, replace(sample, asked=0.5))
    assert (effect.row_misses, effect.row_s) == pytest.approx((0.2, 0.475))


def test_own_rows_are_not_expected_to_be_missed() -> None:
    """Half of the rows are another machine's: every batch reads all of these, and one own row."""
    rows: Any = SimpleNamespace(num_rows=40, num_own=20, row_bytes=4)
    rows.local_indices = lambda vertices: np.where(vertices < 20, vertices, -1)
    sample = SampledBatches(vertices=[np.arange(19, 40, dtype=np.int32)] * 2, num_bytes=0)
    sizes = shared._sizes(rows, sample, 1 << 20, HORIZON)
    assert sizes.misses.num_rows == 20
    assert sizes.misses.mean == pytest.approx(2)  # all 20 in the first of ten steps


def test_own_rows_stay_in_memory_if_a_step_of_others_fits_beside(tmp_path) -> None:
    """Rows of 1 MiB, 20 of them own: others need a place, and two in which they arrive."""
    rows: Any = SimpleNamespace(num_rows=40, num_own=20, row_bytes=1 << 20, part=0)
    rows.local_indices = lambda vertices: np.where(vertices < 20, vertices, -1)
    sample = SampledBatches(vertices=[np.arange(20, dtype=np.int32)] * 2, num_bytes=0)
    sample = replace(sample, num_workers=2)
    rows.own = np.lib.format.open_memmap(tmp_path / "own.npy", "w+", np.uint8, (20, 1 << 20))
    assert shared._plan_remote_rows(rows, sample, 30 << 20, HORIZON) is not None
    assert shared._plan_remote_rows(rows, sample, 21 << 20, HORIZON) is None
    # Without own rows a step has to fit.
    rows = SimpleNamespace(num_rows=40, num_own=0, row_bytes=1 << 20, part=0)
    rows.local_indices = lambda vertices: np.full(len(vertices), -1)
    with pytest.raises(ConfigError, match="the rows of a step do not fit"):
        shared._plan_remote_rows(rows, sample, 1 << 20, HORIZON)


def test_evaluation_reads_all_rows() -> None:
    rows: Any = Rows()
    store = shared.SharedFeatures(rows)
    assert (store.num_rows, store.width, store.row_bytes) == (4, 3, 3)
    found, traffic = store.gather(np.array([3, 0], np.int32), dtype=torch.float32, num_threads=1)
    assert found.tolist() == [[9, 10, 11], [0, 1, 2]]
    assert traffic.rows.host_bytes == 6
