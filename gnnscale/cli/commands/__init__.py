"""Tasks of the commands, on composed options; torch is imported inside, so that help is quick."""

from collections.abc import Callable
from typing import Any

from gnnscale.cli.commands import tasks
from gnnscale.cli.commands.train import train

#: Tasks by the name of their command. A task returns the metric of a sweep's job, or None.
TASKS: dict[str, Callable[[Any], float | None]] = {
    "prepare": tasks.prepare,
    "partition": tasks.partition,
    "plan-cache": tasks.plan_cache,
    "train": train,
    "evaluate": tasks.evaluate,
    "predict": tasks.predict,
    "export": tasks.export,
    "simulate": tasks.simulate,
    "generate": tasks.generate,
    "doctor": tasks.doctor,
}
