from __future__ import annotations

from gnnscale.report.page.cards import badge, table


def test_measured_figures_need_no_mark() -> None:
    assert badge("measured") == ""
    assert badge("csim") == ' <span class="badge">csim</span>'
    assert badge("<b>") == ' <span class="badge">&lt;b&gt;</span>'


def test_columns_of_absent_figures_are_left_out() -> None:
    shown = table(
        {"device": ["a", "b"], "kind": ["–", "–"]},
        {"hits": ["1", "–"], "misses": ["–", "–"]},
    )
    assert shown == (
        '<table><tr><th class="left">device</th><th class="left">kind</th><th>hits</th></tr>'
        '<tr><td class="left">a</td><td class="left">–</td><td>1</td></tr>'
        '<tr><td class="left">b</td><td class="left">–</td><td>–</td></tr></table>'
    )
