"""Calls of ``gnnscale.ops`` and of the samplers: valid ones, and such with spoilt arguments."""

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnscale.graph import Graph

from ..case import OK, REFUSED, Keep, Outcome, case_rng, failure, line_fault
from .calls import CALLS, MAKERS, valid_call
from .reference import expected_of, found_of, wrong
from .spoil import ANY, BAD, SAME, Spoilt, spoil

_REFUSALS = (TypeError, ValueError, OverflowError, MemoryError)
#: Parts of a graph count as its names.
_GRAPH_NAMES = ("graph", "indptr", "indices", "edge_weights", "tiny")


@dataclass(frozen=True)
class Call:
    """A function, its arguments, and what was spoilt of them."""

    function: str
    args: dict[str, Any]
    spoilt: dict[str, Spoilt]

    def __str__(self) -> str:
        lines = [f"{self.function}("]
        for name, value in self.args.items():
            remark = f"  # spoilt: {self.spoilt[name].what}" if name in self.spoilt else ""
            lines.append(f"    {name}={_shown(value)},{remark}")
        return "\n".join([*lines, ")"])


class Ops:
    """Every public function in turn, or ``only`` one."""

    batch, limit_s, uses_files = 4000, 10.0, False

    def __init__(self, only: str | None = None) -> None:
        self.functions = [name for name in MAKERS if only in (None, name)]
        if not self.functions:
            raise ValueError(f"{only}: functions are {', '.join(MAKERS)}")
        self.name = "ops" if only is None else f"ops-{only}"

    def prepare(self) -> None:
        torch.set_num_threads(1)
        for number, function in enumerate(self.functions):
            valid_call(function, case_rng("", number))

    def make(self, key: str, number: int, keep: Keep = None) -> Call:
        rng = case_rng(key, number)
        function = self.functions[number % len(self.functions)]
        args = valid_call(function, rng)
        names = rng.sample(sorted(args), min(len(args), rng.choice((0, 1, 1, 1, 1, 1, 2, 3))))
        spoilt = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in names:
                spoilt[name] = spoil(function, name, args[name], rng)
                args[name] = spoilt[name].value
            if rng.random() < 0.02:
                _alias(args, spoilt)
        return Call(function, args, spoilt)

    def run(self, made: Call, folder: Path) -> Outcome:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome = _judged(made)
        message = f"{made}\n{outcome.message}" if outcome.is_finding else ""
        return outcome._replace(message=message)


def _judged(call: Call) -> Outcome:
    kinds = {spoilt.kind for spoilt in call.spoilt.values()}
    expected = expected_of(call.function, call.args) if kinds <= {SAME} else None
    cause = ", ".join(sorted(call.spoilt))
    if len(call.spoilt) == 1:
        cause += " " + re.sub(r"\d{3,}", "N", call.spoilt[cause].what)
    try:
        answer = CALLS[call.function](**call.args)
    except _REFUSALS as error:
        return _refused(call, error, cause)
    except BaseException as error:
        refused = isinstance(error, OSError) and call.function == "write_metis"
        return Outcome(REFUSED) if refused else failure(error)
    if BAD in kinds and ANY not in kinds:  # another odd argument may keep it from being read
        return Outcome("accepted", f"{call.function}: {cause}", f"returned {answer!r:.300}")
    if expected is not None:
        found = found_of(call.function, call.args, answer)
        if wrong(expected, found):
            return Outcome("wrong result", f"{call.function}: {cause}", f"{found}\nnot {expected}")
    return Outcome(OK)


def _refused(call: Call, error: Exception, cause: str) -> Outcome:
    text = str(error)
    if not call.spoilt:
        return Outcome("refused a valid call", f"{call.function}: {text[:80]}", text)
    names = [*call.spoilt, *(_GRAPH_NAMES if "graph" in call.spoilt else ())]
    if len(call.spoilt) > 1 or any(spoilt.kind != BAD for spoilt in call.spoilt.values()):
        names = [*call.args, *_GRAPH_NAMES]  # lengths and types that differ are of either
    named = any(re.search(rf"\b{name}\b", text) for name in names)
    fault = line_fault(text) or ("" if named else "unnamed")
    return Outcome(fault, f"{call.function}: {cause}", text) if fault else Outcome(REFUSED)


def _alias(args: dict[str, Any], spoilt: dict[str, Spoilt]) -> None:
    """Let ``out`` be another argument's memory."""
    others = [name for name in args if name != "out" and type(args[name]) is type(args.get("out"))]
    if "out" in args and others:
        args["out"] = args[others[0]]
        spoilt["out"] = Spoilt(args["out"], f"is {others[0]}", ANY)


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        form = f"{value.dtype}{list(value.shape)} strides {value.strides}"
        return f"<array {form}: {value.reshape(-1)[:12].tolist()}>"
    if isinstance(value, torch.Tensor):
        return f"<tensor {value.dtype}{list(value.shape)} {value.layout}>"
    if isinstance(value, Graph):
        return f"<graph indptr {_shown(value.indptr)} indices {_shown(value.indices)}>"
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))})"
    return repr(value)[:100]
