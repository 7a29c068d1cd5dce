"""Tables of what was found, as ``docs/fpga.md`` has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from rtl.checks import Streams, Taken
from rtl.engine import Step

#: A part may differ by so much of its cycles: what its pipeline takes to fill and to run empty.
MAX_CYCLES = 0.01
#: And the model by so much of its LUTs.
MAX_LUTS = 0.25


def print_streams(found: Iterable[Streams]) -> bool:
    """Print the parts beside their processes; return whether all are equal."""
    print("| part | streams | words | other values | taken in another cycle | cycles, csim | RTL |")
    print("|---|---|---|---|---|---|---|")
    kinds: dict[str, list[Streams]] = defaultdict(list)
    for each in found:
        kinds[f"{each.part}, {each.what}"].append(each)
    for name, runs in kinds.items():
        fields = ("elements", "different", "other_cycle", "csim", "rtl")
        sums = [f"{sum(getattr(run, field) for run in runs):,}" for field in fields]
        print("|", " | ".join([name, str(len(runs)), *sums]), "|")
    print()
    return all(is_equal(run) for runs in kinds.values() for run in runs)


def is_equal(run: Streams) -> bool:
    """Whether the same came out, in as many cycles."""
    return run.different == 0 and abs(run.rtl - run.csim) <= MAX_CYCLES * run.csim


def print_engine(found: Iterable[Step]) -> bool:
    """Print the steps of the small engine; return whether all are equal."""
    print("| model | cycles, csim | RTL | loss and gradients |")
    print("|---|---|---|---|")
    fine = True
    for step in found:
        same = "the same bits" if step.same else "different"
        print(f"| {step.model} | {step.csim_cycles:,} | {step.rtl_cycles:,} | {same} |", flush=True)
        fine &= step.same
        fine &= abs(step.rtl_cycles - step.csim_cycles) <= MAX_CYCLES * step.csim_cycles
    print()
    return fine


def print_resources(found: Iterable[Taken]) -> bool:
    """Print what parts take; return whether the model is near to it."""
    print("| part | LUTs, Yosys | model | DSP | model | BRAM | model | URAM | model |")
    print("|---|---|---|---|---|---|---|---|---|")
    fine = True
    for each in found:
        luts = f"{each.yosys.luts:,.0f} | {each.model.luts:,.0f} ({luts_off(each):+.1%})"
        pairs = ((getattr(each.yosys, name), getattr(each.model, name)) for name in EXACT)
        print(f"| {each.part} | {luts} |", " | ".join(f"{a:g} | {b:g}" for a, b in pairs), "|")
        fine &= is_near(each)
    return fine


#: Resources that the model has to know exactly.
EXACT = ("dsps", "brams", "urams")


def luts_off(taken: Taken) -> float:
    """Return how far the model's LUTs are off."""
    return taken.model.luts / taken.yosys.luts - 1


def is_near(taken: Taken) -> bool:
    """Whether slices and blocks are exact, and LUTs near."""
    exact = all(getattr(taken.yosys, name) == getattr(taken.model, name) for name in EXACT)
    return exact and abs(luts_off(taken)) <= MAX_LUTS
