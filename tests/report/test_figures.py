from __future__ import annotations

from gnnscale.report.figures import (
    count,
    duration,
    gib,
    milliseconds,
    percent,
    short,
    signed_percent,
)


def test_figures_by_hand() -> None:
    assert [milliseconds(value) for value in (0.00123, 0.0123, 0.123, 1.23, None)] == [
        *("1.23", "12.3", "123", "1,230", "–")
    ]
    assert [count(value) for value in (None, 3, 12345.6, 18.178, 0.5, 0.000281)] == [
        *("–", "3", "12,346", "18.18", "0.500", "0.000281")
    ]
    assert [gib(value) for value in (None, 0, 3 << 29, 5 << 20, 30 << 10)] == [
        *("–", "0.00 GiB", "1.50 GiB", "5.0 MiB", "30.0 KiB")
    ]
    numbers = (0, 9_999, 10_000, 99_949, 99_950, 999_499, 999_500, 1_234_567, 3 * 10**12)
    assert [short(number) for number in numbers] == [
        *("0", "9,999", "10.0k", "99.9k", "100k", "999k", "1.00M", "1.23M", "3.00T")
    ]
    assert [percent(0.284), percent(None)] == ["28 %", "–"]
    assert [signed_percent(-0.121), signed_percent(0.05)] == ["-12 %", "+5 %"]
    assert [duration(value) for value in (0.00123, 0.5, 1, 9.94, 9.96, 1234.4)] == [
        *("1.23 ms", "500 ms", "1.0 s", "9.9 s", "10 s", "1,234 s")
    ]
