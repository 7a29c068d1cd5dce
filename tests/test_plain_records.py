from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import pytest

from gnnscale.plain_records import record_from


@dataclass(frozen=True, kw_only=True)
class Part:
    share: float
    threads: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Whole:
    count: int
    name: str
    good: bool
    limit: float | None
    parts: tuple[Part, ...] = ()


GOOD: dict[str, Any] = {
    "count": 3,
    "name": "x",
    "good": True,
    "limit": None,
    "parts": [{"share": 1, "threads": {"a": 1}}],
}


def test_a_record_by_hand() -> None:
    part = Part(share=1.0, threads={"a": 1})
    expected = Whole(count=3, name="x", good=True, limit=None, parts=(part,))
    assert record_from(Whole, GOOD | {"other": object()}, where="w") == expected
    assert record_from(Whole, GOOD | {"limit": 2}, where="w").limit == 2.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": True}, "w.count: True is no int"),
        ({"count": 2.0}, "w.count: 2.0 is no int"),
        ({"count": 2**63}, "w.count"),
        ({"count": None}, "w.count: None is no int"),
        ({"name": 5}, "w.name: 5 is no str"),
        ({"good": 1}, "w.good: 1 is no bool"),
        ({"limit": math.nan}, "w.limit: nan is no float"),
        ({"limit": math.inf}, "w.limit"),
        ({"limit": "1"}, "w.limit"),
        ({"limit": 10**400}, "w.limit"),
        ({"parts": 5}, "w.parts"),
        ({"parts": [5]}, "w.parts.0: 5 is no record"),
        ({"parts": [{"share": 1.0}]}, "w.parts.0: threads is missing"),
        ({"parts": [{"share": 1.0, "threads": {"a": "b"}}]}, "w.parts.0.threads.a: b is no int"),
        ({"parts": [{"share": 1.0, "threads": {1: 1}}]}, "w.parts.0.threads: 1 is no str"),
    ],
)
def test_another_type_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        record_from(Whole, GOOD | change, where="w")
