from __future__ import annotations

import pytest

from gnnscale.config import ConfigError
from gnnscale.plan.efficiency import Efficiency


@pytest.mark.parametrize("value", [0.0, -0.1, 1.01])
def test_a_part_of_a_peak_is_above_0_and_up_to_1(value: float) -> None:
    with pytest.raises(
        ConfigError, match=rf"efficiency\.memory={value}: must be above 0 and up to"
    ):
        Efficiency(processor=1.0, memory=value, accelerator=1.0, link=1.0)
