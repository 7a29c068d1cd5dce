from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gnnscale.runtime.caching.trade import trade_values, traded_rows
from gnnscale.runtime.sync.group import ALONE


@pytest.mark.timeout(120)
def test_several_processes_map_each_others_rows(together: Callable[..., None]) -> None:
    together("check_trade", 3)


def test_one_process_has_its_own_rows() -> None:
    assert trade_values([1], ALONE) == [[1]]
    with traded_rows(2, 3, np.dtype(np.int32), ALONE) as mapped:
        mapped(0)[:] = [[1, 2, 3], [4, 5, 6]]
    assert mapped(0).tolist() == [[1, 2, 3], [4, 5, 6]]
