import pytest
import torch
from torch import nn

from gnnscale.core.errors import ConfigError
from gnnscale.nn.optim import Adam, OptimizerConfig, Sgd


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 3), nn.Linear(3, 1)])


def rates(
    optimizer: OptimizerConfig, epochs: int, metrics: list[float], metric: str = "accuracy"
) -> list[float]:
    return [
        optimizer.learning_rate(epoch, epochs=epochs, metrics=metrics[:epoch], metric=metric)
        for epoch in range(epochs)
    ]


def test_schedules_by_hand() -> None:
    metrics = [0.5, 0.4, 0.5, 0.6, 0.1, 0.2]
    assert rates(Adam(lr=1.0), 3, metrics) == [1, 1, 1]
    plateau = Adam(lr=1.0, schedule="plateau", schedule_epochs=2, schedule_factor=0.5)
    assert rates(plateau, 7, metrics) == [1, 1, 1, 0.5, 0.5, 0.5, 0.25]
    errors = [-each for each in metrics]
    assert rates(plateau, 7, errors, "mae") == [1, 1, 1, 0.5, 0.5, 0.5, 0.25]


@pytest.mark.parametrize("schedule", ["step", "cosine"])
def test_schedules_agree_with_torch(schedule: str) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.3)
    peers = torch.optim.lr_scheduler
    step = schedule == "step"
    kind, sizes = (peers.StepLR, (3, 0.5)) if step else (peers.CosineAnnealingLR, (10,))
    scheduler, expected = kind(optimizer, *sizes), []
    for _ in range(10):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    ours = Sgd(lr=0.3, schedule=schedule, schedule_epochs=3, schedule_factor=0.5)
    assert rates(ours, 10, []) == pytest.approx(expected)


def test_a_warm_up_goes_before_every_schedule() -> None:
    """Two epochs of two steps: a quarter more with each; then the schedule from its beginning."""
    warm = Adam(lr=1.0, warmup_epochs=2)
    factors = [warm.warm_up(step, steps_per_epoch=2) for step in range(6)]
    assert factors == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert Adam(lr=1.0).warm_up(0, steps_per_epoch=2) == 1.0
    for schedule in ("cosine", "step", "constant"):
        plain = Adam(lr=1.0, schedule=schedule, schedule_epochs=2)
        later = Adam(lr=1.0, schedule=schedule, schedule_epochs=2, warmup_epochs=2)
        assert rates(later, 8, []) == [1.0, 1.0, *rates(plain, 6, [])]


def test_weight_decay_of_the_first_layer_only() -> None:
    model = TwoLayers()
    groups = Adam(lr=0.1, weight_decay=0.5, decay_first_layer_only=True).build(model).param_groups
    assert [group["weight_decay"] for group in groups] == [0.5, 0.0]
    assert groups[0]["params"] == list(model.layers[0].parameters())
    assert groups[1]["params"] == list(model.layers[1].parameters())
    (group,) = Sgd(lr=0.1, weight_decay=0.5, momentum=0.9).build(model).param_groups
    assert (group["weight_decay"], group["momentum"], len(group["params"])) == (0.5, 0.9, 4)
    with pytest.raises(ConfigError, match=r"expected a model with an nn\.ModuleList"):
        Adam(lr=0.1, decay_first_layer_only=True).build(nn.Linear(1, 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.0}, "optimizer.lr=0.0: expected a number above 0"),
        ({"lr": float("nan")}, "optimizer.lr=nan"),
        ({"lr": float("inf")}, "optimizer.lr=inf"),
        ({"lr": 1.0, "weight_decay": -0.1}, "weight_decay=-0.1: expected a number of at least 0"),
        ({"lr": 1.0, "schedule": "cos"}, "optimizer.schedule=cos: allowed are constant, cosine"),
        ({"lr": 1.0, "schedule_epochs": 0}, "optimizer.schedule_epochs=0"),
        ({"lr": 1.0, "schedule_factor": 1.0}, "optimizer.schedule_factor=1.0"),
        ({"lr": 1.0, "warmup_epochs": -1}, "optimizer.warmup_epochs=-1: must be at least 0"),
        ({"lr": 1.0, "momentum": 1.0}, r"optimizer.momentum=1.0: expected at least 0 and below 1"),
        ({"lr": 1.0, "momentum": -0.1}, "optimizer.momentum=-0.1: expected at least 0 and below"),
    ],
)
def test_values_that_are_not_allowed(options: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        (Sgd if "momentum" in options else Adam)(**options)  # type: ignore[arg-type]
