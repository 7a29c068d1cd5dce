from typing import Any

import pytest

from gnnscale.core.errors import ConfigError
from gnnscale.run.tasks import LinkPrediction


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_negatives": 0}, "task.num_negatives=0"),
        ({"decoder": "cosine"}, "task.decoder=cosine: allowed are dot, mlp"),
        ({"valid_fraction": 0.0}, "task.valid_fraction=0.0"),
        ({"valid_fraction": 0.5, "test_fraction": 0.5}, "with a sum below 1"),
        ({"hits": 0}, "task.hits=0"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LinkPrediction(**options)
