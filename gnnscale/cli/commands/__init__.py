"""Tasks of the commands: functions that take a command's composed options.

torch and the modules that import it are imported inside the tasks, so that help and completion are
quick.
"""

from collections.abc import Callable
from typing import Any

from gnnscale.cli.commands.predict import evaluate, export, predict
from gnnscale.cli.commands.prepare import partition, plan_cache, prepare
from gnnscale.cli.commands.tools import doctor, generate, simulate
from gnnscale.cli.commands.train import train

#: Tasks by the name of their command. A task returns the metric of a sweep's job, or None.
TASKS: dict[str, Callable[[Any], float | None]] = {
    "prepare": prepare,
    "partition": partition,
    "plan-cache": plan_cache,
    "train": train,
    "evaluate": evaluate,
    "predict": predict,
    "export": export,
    "simulate": simulate,
    "generate": generate,
    "doctor": doctor,
}
