import pytest

from gnnscale.core.config.compose import compose, config_groups, resolved_now
from gnnscale.core.errors import ConfigError
from gnnscale.core.hardware import usable_cores


def test_options_and_groups() -> None:
    options, own = compose("train", ["optimizer=sgd", "seed=3"])
    assert options.seed == 3
    assert options.num_threads == usable_cores()
    assert "hydra" not in options
    assert list(own) == ["hydra"]
    assert own.hydra.overrides.task == ["optimizer=sgd", "seed=3"]
    assert own.hydra.run.dir.startswith("outputs/train/2")
    assert str(resolved_now("a/${now:%Y}")).startswith("a/2")
    assert resolved_now("a/${seed}") is None
    assert "sgd" in config_groups()["optimizer"]
    assert "train" not in config_groups()


@pytest.mark.long
def test_a_directory_may_refer_to_options() -> None:
    asked = "a/${seed}/${model.hidden}/b\\'c d"
    _, own = compose("train", ["seed=7", "model.hidden=9"], directory=asked)
    assert own.hydra.run.dir == "a/7/9/b\\'c d"
    with pytest.raises(ConfigError, match=r"^output=\$\{sed\}: Interpolation key 'sed' not found"):
        compose("train", directory="${sed}")
