import json
import math
import re
from dataclasses import dataclass
from typing import Any

import pytest

from gnnscale.core.types import Count, decode


@dataclass(frozen=True, kw_only=True)
class Part:
    share: float
    threads: dict[str, int]

    def __post_init__(self) -> None:
        if self.share < 0:
            raise ValueError("share\nis negative")


@dataclass(frozen=True, kw_only=True)
class Whole:
    count: int
    name: str
    good: bool
    limit: float | None
    parts: tuple[Part, ...] = ()
    rest: Any = None
    seeds: Count = 0


PART: dict[str, Any] = {"share": 1, "threads": {"a": 1}}
GOOD: dict[str, Any] = {"count": 3, "name": "x", "good": True, "limit": None, "parts": [PART]}


def test_a_record_by_hand() -> None:
    part = Part(share=1.0, threads={"a": 1})
    expected = Whole(count=3, name="x", good=True, limit=None, parts=(part,))
    assert decode(Whole, GOOD | {"other": object()}, source="w") == expected
    assert decode(Whole, json.dumps(GOOD | {"other": [{}]}).encode(), source="w") == expected
    assert decode(Whole, GOOD | {"limit": 2}, source="w").limit == 2.0
    assert decode(list[Part], [PART], source="w") == [part]
    rest = [2**64, math.inf, object()]  # a field of any type holds anything
    assert decode(Whole, GOOD | {"rest": rest}, source="w").rest == rest


def test_another_type_is_refused() -> None:
    for change, message in (
        ({"count": True}, "w.count: Expected `int`, got `bool`"),
        ({"count": 2**63}, "w.count: Expected an integer of 64 bits"),
        ({"count": -(2**63) - 1}, "w.count: Expected an integer of 64 bits"),
        ({"count": 10**4000}, "w.count: "),
        ({"good": 1}, "w.good: Expected `bool`, got `int`"),
        ({"limit": "1"}, "w.limit: Expected `float | null`, got `str`"),
        ({"limit": 10**400}, "w.limit: Number out of range"),
        ({"parts": [5]}, "w.parts[0]: Expected `object`, got `int`"),
        ({"parts": [PART, {"share": 1.0}]}, "w.parts[1]: Object missing required field `threads`"),
        ({"parts": [PART | {"threads": {"a": "b"}}]}, "w.parts[0].threads[...]: Expected `int`"),
        ({"parts": [PART | {"threads": {"a\n": 2**64}}]}, r"w.parts[0].threads.a: Expected an int"),
        ({"parts": [PART | {"share": -1}]}, r"w.parts[0]: share\nis negative"),
        ({"seeds": -1}, "w.seeds: Expected `int` >= 0"),
        ({"seeds": 2**63}, "w.seeds: Expected `int` <= 9223372036854775807"),
    ):
        for values in (GOOD | change, json.dumps(GOOD | change).encode()):
            with pytest.raises(ValueError, match=re.escape(message)) as caught:
                decode(Whole, values, source="w")
            assert str(caught.value).isprintable()
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(
            ValueError, match=r"^w.limit: Expected a finite number, got -?(nan|inf)"
        ):
            decode(Whole, GOOD | {"limit": value}, source="w")
        with pytest.raises(ValueError, match=r"^w: JSON is malformed"):
            decode(Whole, json.dumps(GOOD | {"limit": value}).encode(), source="w")
    part = PART | {"threads": {1: 1}}
    with pytest.raises(ValueError, match=r"^w.parts\[0\].threads: Expected `str`, got `int`$"):
        decode(Whole, GOOD | {"parts": [part]}, source="w")
    assert decode(dict[str, int], b'{"a": 1, "a": 2}', source="w") == {"a": 2}
    with pytest.raises(ValueError, match=r"w.a: "):
        decode(dict[str, int], {"a": 2**63}, source="w")


@pytest.mark.parametrize(
    "content",
    [
        *[b"", b"[]", b"{} {}", b"\xff", b'{"name": "\xff"}', b'{"name": "\\ud800"}'],
        b'{"limit": 1e999}',
        *[b'{"other": ' + b"[" * 100_000, b'{"rest": ' + b'{"a":' * 100_000],
        *[b'{"count": ' + b"9" * 1_000_000 + b"}", b'{"rest": ' + b"9" * 1_000_000 + b"}"],
    ],
    ids=range(11),
)
def test_damaged_json_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"^w[.:]") as caught:
        decode(Whole, content, source="w")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200
