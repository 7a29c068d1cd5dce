"""Options of the fuzzer, its table of results, and the one case that is run again."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from . import sanitized
from .campaign import Campaign
from .case import Input, Target
from .minimise import keep_smallest
from .single import run_alone
from .targets import TARGETS, target_named

__all__ = ["main"]

#: Campaigns by name: the cases of each target, and other options. On two cores the short one takes
#: two minutes, half of it building, the long one an hour.
CAMPAIGNS: dict[str, tuple[tuple[str, ...], ...]] = {
    "short": (
        ("readers", "--cases=1300"),
        ("tables", "--cases=250"),
        ("store", "--cases=600"),
        ("partition", "--cases=500"),
        ("cache_plan", "--cases=500"),
        ("links", "--cases=150"),
        ("preaggregated", "--cases=400"),
        ("checkpoint", "--cases=120"),
        ("run", "--cases=120"),
        ("nvlink", "--cases=200"),
        ("platform", "--cases=150"),
        ("bitstream", "--cases=200"),
        ("ops", "--cases=46000", "--sanitize"),
        ("commands", "--cases=30"),
    ),
    "long": (
        ("readers", "--cases=90000"),
        ("tables", "--cases=10000"),
        ("store", "--cases=10000"),
        ("partition", "--cases=100000"),
        ("cache_plan", "--cases=100000"),
        ("links", "--cases=10000"),
        ("preaggregated", "--cases=10000"),
        ("checkpoint", "--cases=10000"),
        ("run", "--cases=10000"),
        ("nvlink", "--cases=10000"),
        ("platform", "--cases=10000"),
        ("bitstream", "--cases=10000"),
        ("ops", "--cases=2300000", "--sanitize"),
        ("commands", "--cases=2000"),
    ),
}
_TELL_S = 30.0


def main(arguments: Sequence[str]) -> int:
    """Run a campaign, or one case; return 1 where there were findings."""
    options = _parse(arguments)
    if options.target in CAMPAIGNS:
        return _several(options)
    if options.sanitize:
        sanitized.enter()
    target = target_named(options.target, options.only)
    target.prepare()
    if options.case is not None:
        return _one_case(target, options)
    with tempfile.TemporaryDirectory(prefix="gnnscale-fuzz-") as temporary:
        out = Path(options.out or temporary)
        campaign = Campaign(
            target, seed=options.seed, out=out, jobs=options.jobs, limits=not sanitized.active()
        )
        campaign.run(options.cases, _Teller(options.cases))
        _print(campaign, options)
    return 1 if campaign.num_findings else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python scripts/fuzz", description=__doc__)
    parser.add_argument("target", choices=(*TARGETS, *CAMPAIGNS))
    parser.add_argument("--cases", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--seed", type=int, default=0, help="fixes every case (0)")
    parser.add_argument("--jobs", type=int, default=1, help="child processes at a time (1)")
    parser.add_argument("--out", help="folder to write to, and to go on from; else none is kept")
    parser.add_argument("--only", help="one reader, or one function of ops")
    parser.add_argument("--sanitize", action="store_true", help="with sanitizers in native code")
    parser.add_argument("--case", type=int, help="run this case alone, and show how it ends")
    parser.add_argument("--keep", help="folder for the smallest case that ends as --case does")
    return parser.parse_args(arguments)


def _several(options: argparse.Namespace) -> int:
    """Run a campaign of each target, in a process of its own."""
    status = 0
    for target, *others in CAMPAIGNS[options.target]:
        command = [sys.executable, str(Path(__file__).parent), target, *others]
        command += [f"--seed={options.seed}", f"--jobs={options.jobs}"]
        if options.out:
            command.append(f"--out={Path(options.out, target)}")
        print(f"\n== fuzzing {target} ==", flush=True)
        status |= subprocess.run(command, check=False).returncode
    return status


def _one_case(target: Target, options: argparse.Namespace) -> int:
    key = f"{options.seed}/{target.name}"
    made = target.make(key, options.case)
    print(_describe(made))
    outcome = run_alone(target, made, limits=not sanitized.active())
    print(f"{outcome.verdict}: {outcome.detail}\n{outcome.message}")
    if options.keep and outcome.is_finding and isinstance(made, Input):
        print(keep_smallest(target, key, options.case, outcome, Path(options.keep)))
    return 1 if outcome.is_finding else 0


def _describe(made: object) -> str:
    if not isinstance(made, Input):
        return str(made)
    sizes = ", ".join(f"{name} ({len(content)} bytes)" for name, content in made.files.items())
    edits = "; ".join(made.edits) or "none"
    odd = f"\nodd: {dict(made.odd)}" if made.odd else ""
    return f"{made.kind} {dict(made.options)}\nfiles: {sizes}\nedits: {edits}{odd}"


class _Teller:
    """Prints a line of progress now and then."""

    def __init__(self, num_cases: int) -> None:
        self._num_cases = num_cases
        self._began = self._told = time.monotonic()

    def __call__(self, campaign: Campaign) -> None:
        now = time.monotonic()
        if now - self._told > _TELL_S:
            self._told = now
            done = campaign.verdicts.total()
            print(
                f"{now - self._began:5.0f} s  {done} of {self._num_cases} cases, "
                f"{campaign.num_findings} findings",
                file=sys.stderr,
                flush=True,
            )


def _print(campaign: Campaign, options: argparse.Namespace) -> None:
    for (verdict, detail), group in sorted(
        campaign.groups.items(), key=lambda item: -item[1].count
    ):
        cases = ", ".join(map(str, group.cases))
        print(f"\n{verdict} ({group.count}): {detail}\n  cases {cases}")
        print("\n".join(f"  | {line}" for line in group.message.strip().splitlines()[-8:]))
        only = f" --only {options.only}" if options.only else ""
        sanitize = " --sanitize" if options.sanitize else ""
        print(
            f"  python scripts/fuzz {options.target} --seed {options.seed}{only}{sanitize} "
            f"--case {group.cases[0]}"
        )
    print(f"\n| {campaign.target.name} | cases |\n|---|---|")
    for verdict, count in sorted(campaign.verdicts.items()):
        print(f"| {verdict} | {count} |")
