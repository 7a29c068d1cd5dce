"""Options of the fuzzer, its table of results, and the one case that is run again."""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from . import sanitized
from .campaign import Campaign, keep_smallest, run_alone
from .case import Input, Target
from .targets import TARGETS, target_named

#: Campaigns by name: how many cases each target has. On two cores the short one takes two minutes,
#: half of it building, the long one an hour.
CAMPAIGNS: dict[str, dict[str, int]] = {
    "short": {
        **{"readers": 500, "tables": 100, "store": 250, "partition": 200, "cache_plan": 200},
        **{"links": 100, "preaggregated": 200, "checkpoint": 80, "run": 80, "nvlink": 100},
        **{"platform": 80, "bitstream": 100, "board": 40, "vendor": 150, "degrees": 150},
        **{"typed_store": 150, "typed_readers": 150, "timed_store": 150},
        "timed_links": 100,
        **{"rows": 100, "ops": 18_000, "commands": 16},
    },
    "long": {
        **dict.fromkeys(TARGETS, 10_000),
        **{"readers": 90_000, "partition": 100_000, "cache_plan": 100_000},
        **{"ops": 2_300_000, "commands": 2000},
    },
}
_SHOW_S = 30.0


def main(arguments: Sequence[str]) -> int:
    """Run a campaign, or one case; return 1 if there were findings."""
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
        how = {"seed": options.seed, "jobs": options.jobs, "limits": not sanitized.active()}
        campaign = Campaign(target, out=out, **how)
        campaign.run(options.cases, _progress(options.cases))
        _print(campaign, options)
    return 1 if campaign.num_findings else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python scripts/fuzzing", description=__doc__)
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
    status = 0
    for target, cases in CAMPAIGNS[options.target].items():
        command = [sys.executable, str(Path(__file__).parent), target, f"--cases={cases}"]
        command += ["--sanitize"] * (target == "ops")
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


def _progress(num_cases: int) -> Callable[[Campaign], None]:
    """Return what prints a line of progress now and then."""
    began = shown = time.monotonic()

    def show(campaign: Campaign) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown > _SHOW_S:
            shown = now
            done = f"{campaign.verdicts.total()} of {num_cases} cases"
            line = f"{now - began:5.0f} s  {done}, {campaign.num_findings} findings"
            print(line, file=sys.stderr, flush=True)

    return show


def _print(campaign: Campaign, options: argparse.Namespace) -> None:
    again = f"  python scripts/fuzzing {options.target} --seed {options.seed}"
    again += f" --only {options.only}" if options.only else ""
    again += " --sanitize" if options.sanitize else ""
    groups = sorted(campaign.groups.items(), key=lambda item: -item[1].count)
    for (verdict, detail), group in groups:
        cases = ", ".join(map(str, group.cases))
        print(f"\n{verdict} ({group.count}): {detail}\n  cases {cases}")
        print("\n".join(f"  | {line}" for line in group.message.strip().splitlines()[-8:]))
        print(f"{again} --case {group.cases[0]}")
    print(f"\n| {campaign.target.name} | cases |\n|---|---|")
    for verdict, count in sorted(campaign.verdicts.items()):
        print(f"| {verdict} | {count} |")
