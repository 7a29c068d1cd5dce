from __future__ import annotations

import math
from dataclasses import fields

import pytest

from gnnscale.plan.perf.nominal import nominal_platform
from gnnscale.plan.platform import Processor


def test_threads_of_a_nominal_machine_are_all_alike() -> None:
    processor = nominal_platform(6).processor
    rates = [each.name for each in fields(Processor) if each.name.endswith(("bandwidth", "per_s"))]
    rates = [name for name in rates if isinstance(getattr(processor, name), list)]
    assert len(rates) == 9
    for name in rates:
        alone = processor.rate(name, 1, 1)
        assert math.isfinite(alone)
        for threads in range(1, 7):
            assert processor.rate(name, threads, 6) == pytest.approx(threads * alone)
        # More threads than cores take turns.
        assert processor.rate(name, 1, 12) == pytest.approx(alone / 2)


def test_a_nominal_machine_of_one_core() -> None:
    processor = nominal_platform(1).processor
    assert (processor.cores, processor.threads, processor.layer_s) == (1, [1], [3e-4])
