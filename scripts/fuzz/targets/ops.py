"""Calls of ``gnnscale.ops`` and of the samplers: valid ones, and such with spoilt arguments."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnscale.graph import Graph

from ..case import OK, REFUSED, Outcome, case_rng
from ..verdict import failure, line_fault
from .calls import CALLS, MAKERS
from .draw import Draw
from .reference import REFERENCES, wrong
from .spoil import ANY, BAD, SAME, Spoilt, spoil

__all__ = ["Call", "Ops"]

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
    """Every public function in turn.

    Args:
        only: one function; None takes them in turn.
    """

    name = "ops"
    batch = 4000
    limit_s = 10.0
    uses_files = False

    def __init__(self, only: str | None = None) -> None:
        self.functions = [name for name in MAKERS if only in (None, name)]
        if not self.functions:
            raise ValueError(f"{only}: functions are {', '.join(MAKERS)}")
        if only is not None:
            self.name = f"ops-{only}"

    def prepare(self) -> None:
        """Call everything once, so that all is loaded."""
        torch.set_num_threads(1)
        for number in range(len(self.functions)):
            rng = case_rng("", number)
            MAKERS[self.functions[number]](Draw(rng))

    def make(self, key: str, number: int, keep: frozenset[int] | None = None) -> Call:
        """Draw a valid call, and spoil up to three arguments; one in eight stays valid."""
        rng = case_rng(key, number)
        function = self.functions[number % len(self.functions)]
        args = MAKERS[function](Draw(rng))
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
        """Call, and judge the answer or the exception."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome = _judged(made)
        if outcome.is_finding:
            return outcome._replace(message=f"{made}\n{outcome.message}")
        return outcome


def _judged(call: Call) -> Outcome:
    kinds = {spoilt.kind for spoilt in call.spoilt.values()}
    expected, read = None, None
    if kinds <= {SAME} and call.function in REFERENCES:
        answer_of, read = REFERENCES[call.function]
        expected = answer_of(call.args)
    cause = ", ".join(sorted(call.spoilt))
    if len(call.spoilt) == 1:
        cause += " " + re.sub(r"\d{3,}", "N", call.spoilt[cause].what)
    try:
        answer = CALLS[call.function](**call.args)
    except _REFUSALS as error:
        return _refused(call, error, cause)
    except OSError as error:
        if call.function == "write_metis":
            return Outcome(REFUSED)
        return failure(error)
    except BaseException as error:
        return failure(error)
    if BAD in kinds and ANY not in kinds:  # another odd argument may keep it from being read
        return Outcome("accepted", f"{call.function}: {cause}", f"returned {answer!r:.300}")
    if (
        expected is not None
        and read is not None
        and wrong(expected, found := read(call.args, answer))
    ):
        return Outcome("wrong result", f"{call.function}: {cause}", f"{found}\nnot {expected}")
    return Outcome(OK)


def _refused(call: Call, error: Exception, cause: str) -> Outcome:
    text = str(error)
    detail = f"{call.function}: {cause}"
    if not call.spoilt:
        return Outcome("refused a valid call", f"{call.function}: {text[:80]}", text)
    fault = line_fault(text)
    if fault:
        return Outcome(fault, detail, text)
    names = list(call.spoilt)
    if any(isinstance(value, Graph) for value in call.args.values()) and "graph" in names:
        names += _GRAPH_NAMES
    if len(call.spoilt) > 1 or any(spoilt.kind != BAD for spoilt in call.spoilt.values()):
        names = [*call.args, *_GRAPH_NAMES]  # lengths and types that differ are of either
    if not any(re.search(rf"\b{name}\b", text) for name in names):
        return Outcome("unnamed", detail, text)
    return Outcome(REFUSED)


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
