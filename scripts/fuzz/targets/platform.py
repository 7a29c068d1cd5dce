"""Figures of a machine: damaged ones are read, and training is simulated with them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from gnnscale.model import GCN
from gnnscale.plan.platform import Identity, ThisMachine
from gnnscale.plan.simulator import Scaling, SimulateConfig, simulate
from gnnscale.report import simulate as report
from gnnscale.sampler import NeighborSampling

from ..case import Input, WrongResultError, case_rng
from .folders import Artefact, Valid, check_shown, odd_values
from .hostile import hostile_yaml

_FILE = "platform.yaml"
_SHIPPED = ("epyc7763_a5000_x4", "epyc7763_u250_x4")


class Platforms(Artefact):
    """``platform.yaml``, by its name and where the figures of this machine are kept."""

    name = "platform"
    #: Planning a machine whose processor trains too takes twenty times as long.
    kinds = (*("named", "kept") * 20, "hybrid")
    #: Of peak rates, some part is too little; mini-batches may be too large for the memory.
    names = ("batch_size=", "processor.")
    leaves = frozenset({"home"})

    def valid(self, folder: Path) -> list[Valid]:
        found = []
        for name in _SHIPPED:
            file = resources.files("gnnscale.configs") / "platform" / f"{name}.yaml"
            values = yaml.load(file.read_text(), yaml.SafeLoader)
            del values["_target_"]
            found.append(values)
        here = {"accelerator": None, "num_accelerators": 0, "measured_on": asdict(Identity.here())}
        found.append(found[0] | here)
        return [Valid({_FILE: yaml.safe_dump(each).encode()}, each) for each in found]

    def spoiled(
        self, files: Mapping[str, bytes], key: str, number: int, keep: frozenset[int] | None
    ) -> tuple[dict[str, bytes], list[str]]:
        rng = case_rng(key, number, "kind")
        kind = rng.random()
        if kind < 0.5:
            values, edits = odd_values(yaml.safe_load(files[_FILE]), _FILE, key, number, keep)
            return {_FILE: yaml.safe_dump(values).encode()}, edits
        if kind < 0.75:
            return {_FILE: hostile_yaml(rng, files[_FILE])}, []
        return super().spoiled(files, key, number, keep)

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        if made.kind == "kept":
            os.environ["GNNSCALE_HOME"] = str(path)
        machine = ThisMachine(file=None if made.kind == "kept" else path / _FILE)
        platform = machine.open()
        counts = [0] if platform.accelerator is None else [1, 2]
        scaling = simulate(
            SimulateConfig(
                seed=0,
                platform=machine,
                graph="products",
                model=GCN(hidden=8, num_layers=2),
                sampler=NeighborSampling(fanouts=[3, 2]),
                batch_size=64,
                accelerators=counts,
                hybrid=made.kind == "hybrid",
                fused=False,
                prefetch="auto",
            )
        )
        _show(scaling)


def _show(scaling: Scaling) -> None:
    check_shown(
        lambda: report.draw(scaling), lambda console: report.print_scaling(scaling, console)
    )
    json.dumps(report.describe(scaling))
    for result in scaling.results:
        figures: Any = (result.epoch_s, result.mteps, result.predicted.step_s)
        if not all(each >= 0 for each in figures) or math.isinf(result.epoch_s):
            raise WrongResultError("figures of a run that cannot be")
