from __future__ import annotations

import numpy as np
import pytest

from gnnscale.cache.hotness import slices, uniform


def test_numbers_depend_on_seed_and_vertex_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = uniform(1000, 3)
    assert whole.dtype == np.int32
    monkeypatch.setattr(slices, "_SLICE_ENTRIES", 7)
    assert np.array_equal(uniform(500, 3), whole[:500])
    assert (uniform(1000, 4) != whole).all()


def test_the_stream_is_pinned() -> None:
    assert uniform(4, 0).tolist() == [1763799474, 732666017, 396800827, 1563568682]
    assert uniform(2, 2**64 - 1).tolist() == [1264389893, 443263295]


def test_numbers_are_uniform() -> None:
    n = 100_000
    numbers = uniform(n, 5)
    assert numbers.min() >= 0
    counts = np.bincount(numbers >> 25, minlength=64)
    chi_square = ((counts - n / 64) ** 2 / (n / 64)).sum()
    assert chi_square < 120  # 63 degrees of freedom: beyond with probability 2e-5
    assert abs(np.corrcoef(numbers, uniform(n, 6))[0, 1]) < 0.015
