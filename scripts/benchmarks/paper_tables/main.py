"""Command line of ``scripts/benchmarks/paper_tables``."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.paper_tables import hitgnn, hyscale, others, page, sensitivity
from benchmarks.paper_tables.rows import Table

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs" / "paper-results.md"


def tables() -> tuple[Table, ...]:
    return (*hyscale.tables(), *hitgnn.tables(), *others.tables())


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Published tables and figures, predicted.")
    parser.add_argument("--out", type=Path, default=Path("outputs") / "reproduced.html")
    parser.add_argument("--docs", action="store_true", help="write docs/paper-results.md as well")
    parser.add_argument("--locality", action="store_true", help="measure β of METIS' parts")
    options = parser.parse_args(arguments)
    if options.locality:
        from benchmarks.paper_tables import locality

        locality.show()
        return 0
    found, effects = tables(), sensitivity.effects()
    for each in found:
        if each.mean_error is not None:
            print(f"{each.name:62s} {each.mean_error:6.1%}")
        for claim in each.claims:
            print(f"  {'holds' if claim.holds else 'DOES NOT HOLD'}: {claim.what}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(page.page(found, effects))
    if options.docs:
        DOCS.write_text(page.markdown(found, effects))
    print(options.out)
    return 0
