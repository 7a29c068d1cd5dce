from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.timeout(120)
@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.long)])
def test_a_split_model_learns_what_the_whole_one_does(
    together: Callable[..., None], size: int
) -> None:
    together("check_split", size)
