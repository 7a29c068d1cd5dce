"""Records of epochs that nobody trained."""

from typing import Any

from gnnscale.core.stages import STAGES
from gnnscale.run.records import EpochRecord


def epoch(number: int, valid_metric: float | None = 0.5, **fields: Any) -> EpochRecord:
    values: dict[str, Any] = {
        "train_loss": 1 / 3,
        "lr": 0.1,
        "epoch_time_s": 0.1 + number,
        "eval_time_s": None if valid_metric is None else 0.1,
        "num_edges": 10,
        "num_vertices": 10,
        "stage_times_s": dict.fromkeys(STAGES),
        "peak_rss_bytes": 1,
    }
    return EpochRecord(epoch=number, valid_metric=valid_metric, **(values | fields))
