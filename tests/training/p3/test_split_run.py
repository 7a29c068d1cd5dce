from typing import Any

import pytest


@pytest.mark.timeout(120)
@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.long)])
def test_a_split_model_learns_what_the_whole_one_does(together: Any, size: int) -> None:
    together("check_split", size)
