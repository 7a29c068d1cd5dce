from __future__ import annotations

from gnnscale.report.figures import count, gib, milliseconds, percent, signed_percent


def test_figures_by_hand() -> None:
    assert [milliseconds(value) for value in (0.00123, 0.0123, 0.123, 1.23, None)] == [
        *("1.23", "12.3", "123", "1,230", "–")
    ]
    assert [count(value) for value in (None, 3, 12345.6, 18.178, 0.5)] == [
        *("–", "3", "12,346", "18.18", "0.500")
    ]
    assert [gib(value) for value in (None, 0, 3 << 29, 5 << 20)] == [
        *("–", "0.00 GiB", "1.50 GiB", "5.0 MiB")
    ]
    assert [percent(0.284), percent(None)] == ["28 %", "–"]
    assert [signed_percent(-0.121), signed_percent(0.05)] == ["-12 %", "+5 %"]
