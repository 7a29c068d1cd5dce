from __future__ import annotations

import shutil
import tempfile
from types import SimpleNamespace
from typing import Any

import pytest

from gnnscale import hardware
from gnnscale.config import ConfigError
from gnnscale.runtime.evaluation import plan as module
from gnnscale.runtime.evaluation.plan import InferencePlan, plan_layers

PLAN = InferencePlan(
    in_file=(True,), temporary_bytes=5 << 30, memory_bytes=0, stream_bytes=1, cached=True
)


def with_memory(monkeypatch: pytest.MonkeyPatch, available: int) -> None:
    memory = hardware.Memory(total=2 * available, available=available, installed=2 * available)
    monkeypatch.setattr(module, "find_memory", lambda: memory)


def planned(*layers: tuple[int, int], **limits: Any) -> InferencePlan:
    return plan_layers(layers, **({"hidden_bytes": None, "stream_bytes": None} | limits))


def test_layers_that_fit_into_memory_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory(monkeypatch, 1_000_000)
    # 400,000 bytes each: one fits; two, which exist at once, do not.
    assert planned((1000, 100)).in_file == (False,)
    assert planned((1000, 100)).temporary_bytes == 0
    assert planned((1000, 100)).memory_bytes == 400_000
    two = planned((1000, 100), (1000, 100))
    assert two.in_file == (True, True)
    # Rows are filled up to a multiple of 16 features.
    assert two.temporary_bytes == 2 * 1000 * 112 * 4
    assert planned((1000, 100), (1000, 10)).in_file == (False, False)
    assert planned().temporary_bytes == 0
    assert planned((1000, 100), hidden_bytes=399_999).in_file == (True,)


def test_inference_takes_a_bounded_part_of_plenty_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_memory(monkeypatch, 100 << 30)
    assert planned((1 << 20, 128)).in_file == (False,)
    assert planned((1 << 20, 129)).in_file == (True,)
    # What stays in the page cache is read once for every 256 MiB of sums, what does not as rarely
    # as memory allows.
    assert planned((50 << 20, 256)).stream_bytes == 256 << 20
    assert planned((51 << 20, 256)).stream_bytes == 15 << 30
    assert planned((50 << 20, 256)).cached
    assert not planned((51 << 20, 256)).cached


def test_more_than_the_disk_has_is_refused_with_what_else_could_be_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    usage = SimpleNamespace(free=(5 << 30) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(ConfigError) as error:
        PLAN.check_disk()
    assert str(error.value) == (
        "runtime.inference=exact: needs 5.0 GiB of temporary disk, and 5.0 GiB are free in /tmp; "
        "TMPDIR=FOLDER takes another folder, runtime.inference=sampled needs none"
    )
    usage.free = 5 << 30
    PLAN.check_disk()
