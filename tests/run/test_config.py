from collections.abc import Callable
from pathlib import Path

import pytest
from devices import accelerator, plan_of

from gnnscale.core.errors import ConfigError
from gnnscale.nn.optim import Sgd
from gnnscale.run.commands import EvaluateConfig
from gnnscale.run.config import RunConfig
from gnnscale.sampling import LayerSampling

Settings = Callable[..., RunConfig]


def test_options_become_records(settings: Settings) -> None:
    config = settings("optimizer=sgd", "seed=5")
    assert (config.seed, config.epochs, config.batch_size) == (5, 3, 64)
    assert isinstance(config.optimizer, Sgd)
    assert config.resume is None


@pytest.mark.long
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("batch_size=0", "batch_size=0: must be at least 1 and at most"),
        ("batch_size=null", "batch_size=null: expected a value"),
        ("epochs=2147483648", "epochs=2147483648: must be at least 1 and at most"),
        ("num_threads=4097", "num_threads=4097: must be at least 1 and at most 4,096"),
        ("seed=9223372036854775808", "seed=9223372036854775808: expected a number of 64 bits"),
        ("sampler.fanouts=[5]", "set model.num_layers=1, or sampler.fanouts=[5,5]"),
        (f"sampler.fanouts=[{'1,' * 16}1]", "sampler.fanouts=17: must be"),
        ("optimizer.lr=-1", "optimizer.lr=-1.0: expected a number above 0"),
        ("optimizer.warmup_epochs=3", "optimizer.warmup_epochs=3: expected less than epochs=3"),
        ("runtime.compute_dtype=float16", "allowed are float32, bfloat16"),
        ("runtime.accumulate=0", "runtime.accumulate=0: must be at least 1"),
        ("runtime.eval_every=0", "runtime.eval_every=0"),
        ("runtime.checkpoint_every_s=-1", "runtime.checkpoint_every_s=-1.0: expected 0 or more"),
        ("runtime.clip_norm=0", "runtime.clip_norm=0.0: expected a number above 0"),
        ("runtime.prefetch=three_stage", "allowed are auto, none, one_stage, two_stage"),
        ("device_plan=cpu_x2 device_plan.split=[30,30]", "expected a sum of batch_size=64, got 60"),
        ("device_plan.split=[9223372036854775807]", "expected numbers from 0 to"),
        ("device_plan.devices=[gpu]", "device_plan.devices.0.kind=gpu"),
        (plan_of(*["cpu"] * 1025), "number of device_plan.devices=1025: must be at least 1 and"),
        (plan_of("{kind:cpu,name:../x}"), "device_plan.devices.0.name=../x: expected"),
        ("+optimizer.momentun=0.9", "optimizer.momentun: unknown option"),
        ("loss=cross_entropy device_plan=fpga_csim", "loss: expected auto, and classes, for fpga:"),
        ("loss=cross_entropy loss.class_weights=[1,a]", "loss.class_weights: expected numbers of"),
        ("metrics=[mae,mae]", "metrics=[mae, mae]: expected different names"),
        ("metrics=[accurracy]", "metrics=accurracy: allowed are accuracy, macro_f1, micro_f1"),
        (
            "model=gcn model.input_dropout=0.5 partitioner=p3 device_plan=cpu_x2",
            "model.input_dropout=0.5: expected 0 with partitioner=p3, whose devices aggregate",
        ),
        (
            "model=gcn model.input_dropout=0.5 features=preaggregated sampler=full",
            "model.input_dropout=0.5: expected 0 with features=preaggregated, whose rows are",
        ),
        ("model.input_dropout=1", "model.input_dropout=1.0: expected at least 0 and below 1"),
        (
            "+logger.neptune=true",
            "logger=neptune: allowed are csv, tensorboard, mlflow, prometheus, wandb",
        ),
        ("observers=[os.system]", "observers=os.system: expected MODULE:NAME"),
        ("dataset._target_=os.system", "expected a class of gnnscale"),
    ],
)
def test_values_that_are_not_allowed(settings: Settings, overrides: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings(*overrides.split())
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.long
def test_devices_for_cache_plans_and_samplers(settings: Settings) -> None:
    with pytest.raises(ConfigError, match=r"^cache_plan=there: expected a device with memory"):
        settings("cache_plan=there", "device_plan=cpu_x2")
    settings("cache_plan=there", plan_of("cpu", accelerator()))
    # A planner has nothing to plan, which a sweep over devices may well come to.
    settings("cache_planner=pagraph", "device_plan=cpu_x2")
    assert settings("device_plan=hybrid_emulated", "sampler=labor").sampler.num_layers == 2
    refused = "^sampler: expected NeighborSampling, .* for cuda:0, .*, got LaborSampling;"
    with pytest.raises(ConfigError, match=refused):
        settings("device_plan=cuda", "sampler=labor")


def test_sizes_of_layers_and_options_of_evaluation() -> None:
    for sizes, message in (([2**31, 5], "layer_sizes=2147483648"), ([1] * 17, "layer_sizes=17")):
        with pytest.raises(ConfigError, match=message):
            LayerSampling(layer_sizes=sizes)
    with pytest.raises(ConfigError, match="inference=all: allowed are exact, sampled"):
        EvaluateConfig(run=Path(), num_threads=1, inference="all")
    with pytest.raises(ConfigError, match="num_threads=0"):
        EvaluateConfig(run=Path(), num_threads=0)
