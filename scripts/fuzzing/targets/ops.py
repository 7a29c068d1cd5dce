"""Calls of ``gnnscale.ops`` and of the samplers: valid ones, and such with spoilt arguments."""

import random
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from gnnscale.graph import Graph
from gnnscale.graph.dtypes import FEATURE_DTYPES

from ..case import OK, REFUSED, Keep, Outcome, case_rng, failure, line_fault
from .calls import CALLS, MAKERS, valid_call
from .reference import expected_of, found_of, wrong

#: May the call go on? ``SAME``: with the answer for these values; ``ANY``: with any answer.
BAD, SAME, ANY = "bad", "same", "any"


class Spoilt(NamedTuple):
    """An argument in a new form, what was done to it, and whether the call may go on."""

    value: Any
    what: str
    kind: str


_JUNK = ("3", b"3", {"a": 1}, object(), [[1], [2, 3]], 1j, "x" * 1000, [None], np.str_("7"), type)
_DTYPES = (
    *("bool", "int8", "int16", "uint16", "uint32", "uint64", "float16", "float32", "float64"),
    *("complex64", "object", "int32", "int64", ">i4", ">i8", ">f4", "U5", "M8[s]"),
)
_TORCH_DTYPES = (
    *(torch.float64, torch.float16, torch.int8, torch.int32, torch.int64, torch.bool),
    *(torch.complex64, torch.bfloat16, torch.uint8, torch.float32),
)
_VALUES = (-1, 2**31 - 1, -(2**31), 2**62, -(2**63), 2**32 + 5, 10**6)
_NO_NUMBERS = ("1", None, b"1", [1], (1, 2), 1j, np.array([1, 2]), np.str_("1"), object())
_ODD_NUMBERS = (
    *(-1, -(2**31), 2**31, 2**32 + 5, 2**62, 2**63, 2**64, -(2**63), -(2**64), 10**30),
    *(float("nan"), float("inf"), -float("inf"), 3.7, 1e300, np.float64(2.5), 0, True),
)
#: Whole numbers for which any value is legal, if not of any use.
_FREE = ("seed", "step", "key", "first_dst")
#: Numbers in whose place None is legal.
_OPTIONAL = ("max_bytes", "self_term", "backward_tile_rows", "num_columns_words")
#: They read some of the lists only; a lie that they do not come across does no harm.
_READ_IN_PART = ("count_cut", "hops_from", "pagraph_stream", "DiskLists")
#: They name what the system refuses in their own words.
_OF_FILES = ("write_metis", "RowReader", "RowReader.submit")
_IN_RANGE = ("gather_cached", "count_slots", "count_uses", "count_reads", "copy_rows")
#: Arguments whose values are held against what they count or number.
_CHECKED_OF = {
    **dict.fromkeys((*_IN_RANGE, "RankedSlots.gather_cached"), ("vertices",)),
    **dict.fromkeys(("edge_dot", "transpose_block", "arrange_block"), ("indices",)),
    **dict.fromkeys(("aggregate_max", "aggregate_max_backward"), ("indices",)),
    **dict.fromkeys(("pair_scores", "pair_scores_backward"), ("indices",)),
    **{"RowReader.submit": ("rows", "slots"), "DiskLists": ("held",)},
    **{"count_in_degrees": ("dst",), "NativeReplacement.advance": ("vertices", "then")},
}
_CHECKED = ("ids", "self_ids", "out_ids", "seeds", "community", "slots_of_target", "destinations")
_COUNTED = ("weights", "dst_scale", "self_scale", "bias", "gate")


def spoil(function: str, name: str, value: Any, rng: random.Random) -> Spoilt:
    """Return ``value`` spoilt, or as it was if the kind of spoiling does not suit it."""
    if value is None:
        junk = rng.choice((*_JUNK, 1, 2.5, np.zeros(3), torch.zeros(2)))
        return Spoilt(junk, f"{type(junk).__name__} for None", ANY)
    if isinstance(value, bytes):
        junk = rng.choice((*_JUNK, *_NO_NUMBERS))
        fits = isinstance(junk, bytes)
        return Spoilt(junk, f"{type(junk).__name__} {str(junk)[:9]}", ANY if fits else BAD)
    if rng.random() < 0.08:
        junk = rng.choice(_JUNK)
        return Spoilt(junk, f"{type(junk).__name__} {str(junk)[:9]}", ANY if name in _FREE else BAD)
    if isinstance(value, Graph):
        return _graph(value, rng)
    if isinstance(value, torch.Tensor):
        return rng.choice(_TENSORS)(value, rng)
    if isinstance(value, np.ndarray):
        return _array(function, name, value, rng)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str):
        return _pair(function, name, value, rng)
    if isinstance(value, (list, tuple)):
        return _sequence(value, rng)
    return _scalar(name, value, rng)


def _array(function: str, name: str, value: Any, rng: random.Random) -> Spoilt:
    kind = rng.random()
    if kind < 0.3:
        return _form(value, rng)
    if kind < 0.5:
        dtype = rng.choice(_DTYPES)
        with np.errstate(all="ignore"):
            changed = value.astype(dtype)
        # Where values survive, the answer has to be theirs.
        exact = changed.dtype.kind in "iuf" and np.array_equal(changed, value)
        return Spoilt(changed, f"as {dtype}", SAME if exact else BAD if len(value) else ANY)
    if kind < 0.7:
        return _length(name, value, rng)
    return _values(function, name, value, rng)


def _values(function: str, name: str, value: Any, rng: random.Random) -> Spoilt:
    if not value.size or value.dtype.kind not in "iu":
        return Spoilt(value, "nothing", SAME)
    changed, at = value.copy(), rng.randrange(value.size)
    if name == "indptr":
        if rng.random() < 0.3:
            return Spoilt(changed + 1, "not from 0", BAD if function != "csc_sort" else ANY)
        # The last may be less than there are edges.
        number = rng.choice((-1, 2**62, -(2**63), 10**6, 2**31))
        changed[at] = number
        inner = 0 < at < len(value) - 1
        unread = len(value) < 2 or (function in _READ_IN_PART and inner)
        if function == "count_reads" and at == len(value) - 1:
            unread = True  # a block with so many edges
        return Spoilt(changed, f"[{at}] = {number}", ANY if unread else BAD)
    limits = np.iinfo(value.dtype)
    if not limits.min:  # features, of which every value is one
        return Spoilt(np.full_like(value, limits.max), "all bits", ANY)
    fits = [number for number in _VALUES if limits.min <= number <= limits.max]
    number = rng.choice(fits)
    changed.reshape(-1)[at] = number
    checked = name in _CHECKED_OF.get(function, ()) or name in _CHECKED
    if function.startswith("IntegerIds"):  # whose ids are the user's own
        checked = False
    return Spoilt(changed, f"[{at}] = {number}", BAD if checked else ANY)


def _length(name: str, value: Any, rng: random.Random) -> Spoilt:
    how = rng.randrange(4)
    if how < 2:
        less, what = (value[:0], "empty") if how or not len(value) else (value[:-1], "one less")
        return Spoilt(less.copy(), what, BAD if what != "empty" and name in _COUNTED else ANY)
    return Spoilt(np.concatenate([value, value[-1:]]), "one more", ANY)


def _unaligned(value: Any) -> Any:
    raw = np.zeros(value.nbytes + 1, np.uint8)[1:].view(value.dtype).reshape(value.shape)
    raw[...] = value
    return raw


def _read_only(value: Any) -> Any:
    changed = value.copy()
    changed.flags.writeable = False
    return changed


def _if_any(change: Callable[[Any], Any], value: Any) -> Any:
    return change(value) if value.size else value


#: Other forms of an array, and whether the call may go on.
_FORMS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "step 2": (lambda value: np.repeat(value, 2, axis=-1)[..., ::2], SAME),
    "reversed": (lambda value: value[..., ::-1].copy()[..., ::-1], SAME),
    **{"unaligned": (_unaligned, SAME), "read-only": (_read_only, SAME)},
    "stride 0": (lambda v: _if_any(lambda v: np.broadcast_to(v.ravel()[:1], v.shape), v), ANY),
    "Fortran": (np.asfortranarray, SAME),
    "0-d": (lambda value: np.zeros((), value.dtype), BAD),
    "structured": (lambda value: np.zeros(value.shape, [("a", value.dtype)]), BAD),
    "list": (lambda value: value.tolist(), SAME),
    "torch tensor": (lambda value: torch.from_numpy(np.array(value)), SAME),
    **{
        f"axes {form}": (partial(_if_any, methodcaller("reshape", form)), BAD)
        for form in ((1, -1), (-1, 1), (1, 1, -1))
    },
}


def _form(value: Any, rng: random.Random) -> Spoilt:
    what = rng.choice(list(_FORMS))
    make, kind = _FORMS[what]
    changed = make(value)
    same_axes = what.startswith("axes") and changed.shape == value.shape
    return Spoilt(changed, what, ANY if same_axes else kind)


def _tensor_dtype(value: torch.Tensor, rng: random.Random) -> Spoilt:
    dtype = rng.choice(_TORCH_DTYPES)
    return Spoilt(value.to(dtype), f"as {dtype}", SAME if dtype != torch.complex64 else BAD)


def _tensor_form(value: torch.Tensor, rng: random.Random) -> Spoilt:
    forms: tuple[tuple[str, Callable[[], Any], str], ...] = (
        ("transposed", lambda: value.t().contiguous().t() if value.ndim == 2 else value, SAME),
        ("requires grad", lambda: value.clone().requires_grad_(value.is_floating_point()), ANY),
        ("sparse", lambda: value.to_sparse(), BAD),
        ("meta", lambda: value.to("meta"), BAD),
        ("flat", lambda: value.reshape(-1), ANY),
        ("three axes", lambda: value.reshape(1, *value.shape), ANY),
        ("0-d", lambda: torch.zeros((), dtype=value.dtype), ANY),
        ("one row more", lambda: torch.cat([value, value[-1:]]) if value.ndim else value, ANY),
        ("one row less", lambda: value[:-1].clone() if value.ndim else value, ANY),
        ("one column less", lambda: value[..., :-1] if value.ndim else value, ANY),
        ("stride 0", lambda: value[:1].expand(value.shape) if len(value) else value, ANY),
        ("step 2", lambda: value.repeat_interleave(2, -1)[..., ::2], SAME),
        ("list", lambda: value.tolist(), ANY),
        ("array", lambda: value.float().numpy(), ANY),
        ("conjugate", lambda: torch.zeros(value.shape, dtype=torch.complex64).conj(), BAD),
        ("negative view", lambda: torch._neg_view(value.clone()), ANY),
    )
    what, make, kind = rng.choice(forms)
    return Spoilt(make(), what, kind)


_TENSORS = (_tensor_dtype, _tensor_form, _tensor_form)


def _pair(function: str, name: str, value: tuple[Any, str], rng: random.Random) -> Spoilt:
    """Spoil rows that are an array with the name of its type."""
    array, dtype = value
    kind = rng.randrange(4)
    if kind == 0:
        other = rng.choice((*FEATURE_DTYPES, "int16", "", None, 3))
        return Spoilt((array, other), f"named {other}", SAME if other == dtype else ANY)
    if kind == 1:
        return Spoilt((array,), "a tuple of one", BAD)
    inner = _array(function, "rows", array, rng)
    # Other axes are a matrix too, and bfloat16 may come as either kind of 16 bits.
    fits = inner.kind == SAME or inner.what.startswith(("axes", "as int16", "as uint16"))
    return Spoilt((inner.value, dtype), inner.what, ANY if fits else inner.kind)


def _sequence(value: Any, rng: random.Random) -> Spoilt:
    changed = list(value)
    kind = rng.randrange(5)
    if kind == 0:
        return Spoilt(type(value)(), "empty", ANY)
    if kind == 1:
        return Spoilt(rng.choice((5, "ab", None, {"a": 1}, 2.5)), "no sequence", BAD)
    if kind == 2:
        return Spoilt(type(value)(changed * 30), "many", ANY)
    if not changed:
        return Spoilt(value, "nothing", SAME)
    at = rng.randrange(len(changed))
    if not isinstance(changed[at], int):  # a cache, or vertices
        is_array = isinstance(changed[at], np.ndarray)
        if isinstance(changed[at], tuple):
            inner = _pair("", "", changed[at], rng)
        elif isinstance(changed[at], list):
            inner = _sequence(changed[at], rng)
        else:
            inner = (_form if is_array else rng.choice(_TENSORS))(changed[at], rng)
        changed[at] = inner.value
        return Spoilt(type(value)(changed), f"[{at}] {inner.what}", inner.kind)
    number = rng.choice((*_ODD_NUMBERS, *_NO_NUMBERS))
    changed[at] = number
    what = f"[{at}] = {str(number)[:20]}"
    return Spoilt(type(value)(changed), what, ANY if isinstance(number, int) else BAD)


def _scalar(name: str, value: Any, rng: random.Random) -> Spoilt:
    if rng.random() < 0.4:
        junk = rng.choice(_NO_NUMBERS)
        legal = isinstance(value, bool) or (junk is None and name in _OPTIONAL)
        return Spoilt(junk, f"{type(junk).__name__} {str(junk)[:9]}", ANY if legal else BAD)
    number = rng.choice(_ODD_NUMBERS)
    whole = not isinstance(value, (bool, float))
    bad = whole and (isinstance(number, float) or not -(2**63) <= number < 2**64)
    return Spoilt(number, str(number)[:24], BAD if bad else ANY)


def _graph(value: Graph, rng: random.Random) -> Spoilt:
    name = rng.choice(("indptr", "indices", "indices"))
    inner = _array("graph", name, getattr(value, name), rng)
    # A lie that no batch comes across does no harm.
    return Spoilt(replace(value, **{name: inner.value}), f"{name} {inner.what}", ANY)


_REFUSALS = (TypeError, ValueError, OverflowError, MemoryError)
#: Parts of a graph count as its names.
_GRAPH_NAMES = ("graph", "indptr", "indices", "edge_weights", "edge_rows", "tiny")


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
        refused = isinstance(error, OSError) and call.function in _OF_FILES
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
