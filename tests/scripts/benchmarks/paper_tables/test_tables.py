"""The papers' tables, by the same code that makes the page."""

import re
from pathlib import Path
from statistics import fmean

import pytest
from benchmarks.paper_tables import hitgnn, hyscale, independence, page
from benchmarks.paper_tables.rows import Row, Table
from benchmarks.paper_tables.sensitivity import CHANGES, Effect, effect

pytestmark = pytest.mark.integration

DOCS = Path(__file__).parents[4] / "docs" / "paper-results.md"


def documented(name: str) -> float:
    """Return the mean error that the page states, in percent."""
    found = re.search(rf"^\| {re.escape(name)} \| \d+ \| ([\d.]+)% \|$", DOCS.read_text(), re.M)
    assert found is not None
    return float(found[1])


def test_hyscales_table_vi_is_met_within_a_quarter() -> None:
    table = hyscale.table_vi()
    assert len(table.rows) == 10
    assert table.mean_error < 0.25
    assert documented(table.name) == pytest.approx(100 * table.mean_error, abs=0.06)


def test_hitgnns_table_vi_is_met_within_a_quarter() -> None:
    tables = hitgnn.table_vi()
    assert [len(table.rows) for table in tables] == [24] * 4
    assert fmean(table.mean_error for table in tables) < 0.25
    for table in tables:
        assert documented(table.name) == pytest.approx(100 * table.mean_error, abs=0.06)


def test_table_v_and_the_order_of_its_designs() -> None:
    table = hitgnn.table_v()
    assert all(claim.holds for claim in table.claims)
    by_cell = {row.cell: row for row in table.rows}
    for name, published in (("(8, 2048) DSP slices", 90), ("(16, 1024) LUTs", 65)):
        assert by_cell[name].predicted == pytest.approx(published, abs=1)
    assert abs(by_cell["ratio of both"].error) < 0.05


def test_every_step_has_the_sign_that_the_papers_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hyscale, "COUNTS", (1, 8, 12, 16))
    for table in (hitgnn.table_vii(), hitgnn.figure_8(), hyscale.figure_9(), hyscale.figure_11()):
        assert table.claims
        assert [claim.what for claim in table.claims if not claim.holds] == []


def test_a_change_of_one_assumption_moves_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hyscale, "TABLE_VI", hyscale.TABLE_VI[:3])
    monkeypatch.setattr(hitgnn, "ALGORITHMS", {"distdgl": "DistDGL"})
    by_name = {change.what: change for change in CHANGES}
    usual = effect(by_name["as predicted"])
    peak = effect(by_name["links at their peak, 16 GB/s"])
    assert list(usual.hyscale) == [row.error for row in hyscale.table_vi().rows]
    assert all(now <= old + 1e-9 for now, old in zip(peak.hyscale, usual.hyscale, strict=True))
    assert peak.hyscale[0] < usual.hyscale[0] - 0.1
    assert usual.mean < 0.25


def test_the_page_shows_every_cell() -> None:
    rows = [Row(cell=f"cell <{n}>", unit="s", published=1.0 + n, predicted=2.0) for n in range(9)]
    table = Table(name="A table", rows=rows, assumptions=("an assumption",))
    effects = [Effect(what="as predicted", hyscale=(0.1, -0.2), hitgnn=0.3)]
    html = page.page([table], effects)
    for n in range(9):
        assert f"cell &lt;{n}&gt;" in html
    assert "an assumption" in html
    assert html.count("<circle") == 9
    text = page.markdown([table], effects)
    assert "| cell <0> | 1 | 2 | s | +100 % |  |" in text
    assert "| as predicted | +10 % | -20 % | 15% | 30% |" in text


def test_the_page_counts_independent_figures() -> None:
    """Table VI of HitGNN is 24 epoch times: its other figures follow from them."""
    tables = {table.name: table for table in hitgnn.table_vi()}
    found = {each.table: each for each in independence.counts([*tables.values()])}
    names = [name for name in tables if "epoch time" not in name]
    assert [found[name].independent for name in names] == [1, 0, 0]
    assert all(found[name].figures == 24 and found[name].rest for name in names)
    assert (found["all"].figures, found["all"].independent) == (96, 25)
    epochs, rates, efficiencies, energies = (table.rows for table in tables.values())
    fitted = [number for number, row in enumerate(rates) if "products" not in row.cell]
    for number in fitted:
        inverse = 1 / (1 + epochs[number].error) - 1
        assert rates[number].error == pytest.approx(inverse, abs=0.01)
    for number, row in enumerate(efficiencies):
        assert row.error == pytest.approx(rates[number].error, abs=0.01)
        watts = (1 + epochs[number].error) * 180 / independence.watts() - 1
        assert energies[number].error == pytest.approx(watts, abs=0.01)


def test_the_page_says_what_it_does_not_show() -> None:
    text = DOCS.read_text()
    section = text.split("## What these figures do not show\n")[1].split("\n## ")[0]
    for words in ("211.5 W", "180 W", "1.69215 s", "3.66906 s", "URAM and BRAM", "183 GB/s"):
        assert words in section, words
    for note in independence.notes():
        assert f"\n- {note}\n" in f"{section}\n", note
    for cell in ("(8, 2048) URAM | 48", "(16, 1024) BRAM | 28", "HP-GNN yelp K/(GB/s) | 98.3"):
        assert f"\n| {cell} |" in text
