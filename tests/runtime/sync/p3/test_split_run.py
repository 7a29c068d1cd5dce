from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.timeout(120)
@pytest.mark.parametrize("size", [2, 3])
def test_a_split_model_learns_what_the_whole_one_does(
    together: Callable[..., None], size: int
) -> None:
    together("check_split", size)
