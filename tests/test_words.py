"""Words to avoid, listed in words.txt, become fewer: in pages, in the package, and in its tests."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORDS = Path(__file__).with_name("words.txt")
#: Folders of each tier, in the order of the limits in words.txt.
TIERS = {
    "pages": ("*.md", "docs/*.md", "fpga/*.md"),
    "package": ("gnnscale/**/*", "native/**/*", "fpga/**/*"),
    "tests": ("tests/**/*", "scripts/**/*", "examples/**/*"),
}
CODE = (".py", ".pyi", ".yaml", ".cpp", ".hpp")
#: Made from docstrings, which are counted in the package.
MADE = ROOT / "docs" / "configuration.md"


@cache
def lines(tier: str) -> list[tuple[str, str]]:
    """Return the place and the text of every line, without the code of pages."""
    found = []
    for path in sorted({path for pattern in TIERS[tier] for path in ROOT.glob(pattern)}):
        if path.suffix not in ((".md",) if tier == "pages" else CODE) or path == MADE:
            continue
        text = path.read_text()
        if tier == "pages":
            text = re.sub(r"^```.*?^```$|`[^`\n]*`", _blank, text, flags=re.M | re.S)
        name = path.relative_to(ROOT)
        found += [(f"{name}:{i}", line) for i, line in enumerate(text.splitlines(), 1)]
    return found


def _blank(code: re.Match[str]) -> str:
    return "\n" * code[0].count("\n")


def rules() -> Iterator[tuple[str, str, list[int]]]:
    for line in WORDS.read_text().splitlines():
        if line and not line.startswith("#"):
            word, instead, *limits = (cell.strip() for cell in line.split(";"))
            yield word, instead, [int(limit) for limit in limits]


@pytest.mark.parametrize("rule", [*rules()], ids=lambda rule: rule[0])
def test_words_become_fewer(rule: tuple[str, str, list[int]]) -> None:
    word, instead, limits = rule
    pattern = re.compile(word, re.I)
    for tier, limit in zip(TIERS, limits, strict=True):
        uses = [f"{place}: {text}" for place, text in lines(tier) for _ in pattern.finditer(text)]
        shown = "\n".join(uses[:20])
        assert len(uses) <= limit, f"{len(uses)} uses in {tier}; better: {instead}\n{shown}"
