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
        ({"hits": [0]}, "task.hits=0"),
        ({"hits": [5, 1, 5]}, r"task.hits=\[5, 1, 5\]: expected each number once"),
        ({"loss": "hinge"}, "task.loss=hinge: allowed are bce, bpr, softmax"),
        ({"negatives": "hard"}, "task.negatives=hard: allowed are uniform, popular"),
        ({"num_candidates": "every"}, "task.num_candidates=every: expected a number of vertices"),
        ({"num_candidates": 0}, "task.num_candidates=0"),
        ({"num_candidates": "all", "k": [20, 0]}, "task.k=0"),
        ({"num_candidates": "all", "filter": "seen"}, "task.filter=seen: allowed are known, none"),
        ({"k": [20]}, r"task.k=\[20\]: expected task.num_candidates=all with it, got 100"),
        ({"filter": "known"}, "task.filter=known: expected task.num_candidates=all with it"),
        ({"candidate_kind": "film"}, "task.candidate_kind=film: expected task.candidate_column"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LinkPrediction(**options)
