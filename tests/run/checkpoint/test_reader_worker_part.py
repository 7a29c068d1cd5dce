from typing import Any

import pytest
import torch
from torch import nn

from gnnscale.core.types import decode
from gnnscale.run.checkpoint.file import unpack
from gnnscale.run.checkpoint.reader import WorkerPart


def model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    found = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    found(torch.randn(5, 3))
    return found


def part_of(of: nn.Module, **changed: Any) -> dict[str, Any]:
    counters = {"late_s": 0.1, "late_steps": 3}
    values = {"buffers": dict(of.named_buffers()), "rows": {0: 7, 1: 2**40}, "counters": counters}
    return values | changed


def test_buffers_come_back_bit_for_bit() -> None:
    one, other = model(0), model(1)
    packed = WorkerPart(**part_of(one)).packed()
    before = {name: each.clone() for name, each in one.named_buffers()}
    one(torch.randn(5, 3))  # the part is a copy
    part = decode(WorkerPart, unpack(packed), source="worker")
    part.restore_buffers(other)
    assert part.rows == {0: 7, 1: 2**40}
    assert part.counters == {"late_s": 0.1, "late_steps": 3}
    assert type(part.counters["late_steps"]) is int
    assert all(torch.equal(each, before[name]) for name, each in other.named_buffers())


def test_parts_of_something_else() -> None:
    for name, other in (("buffers", {"a": 1}), ("rows", {0: -1}), ("counters", {"late_s": "x"})):
        with pytest.raises(ValueError, match=rf"^worker\.{name}.*: Expected"):
            decode(WorkerPart, part_of(model(0), **{name: other}), source="worker")


def test_buffers_of_another_model_change_nothing() -> None:
    own = model(0)
    before = {name: each.clone() for name, each in own.named_buffers()}
    buffers = dict(model(1).named_buffers())
    wider = buffers | {"1.running_var": torch.ones(5)}
    for changed, message in ((wider, r"1\.running_var is \[5\]"), ({}, "buffers of another model")):
        part = WorkerPart(**part_of(own, buffers=changed))
        with pytest.raises(ValueError, match=message):
            part.restore_buffers(own)
    assert all(torch.equal(each, before[name]) for name, each in own.named_buffers())
