import json
import mmap
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fuzzing import campaign as module
from fuzzing.campaign import Campaign, run_alone, shrink, shrink_bytes
from fuzzing.case import Input, Outcome, from_json, guarded, strange_files, to_json

NAMES = ["file.txt"]


def refuse(text: str = "refused") -> None:
    raise ValueError(f"file.txt: {text}")


def eat() -> None:
    # Mapped, since an allocator may have kept as much from earlier tests.
    with mmap.mmap(-1, 200_000_000) as pages:
        pages[:: 1 << 12] = b"x" * len(pages[:: 1 << 12])
        refuse()


#: What case ``n`` does, and how it is judged.
DEEDS: list[tuple[Any, str]] = [
    (lambda: None, "ok"),
    (refuse, "refused"),
    (lambda: os.kill(os.getpid(), signal.SIGSEGV), "signal SIGSEGV"),
    (lambda: 1 / 0, "traceback"),
    (lambda: time.sleep(60), "timeout"),
    (lambda: refuse("one\ntwo"), "several lines"),
    (lambda: refuse("\x1b[31m"), "control characters"),
    (lambda: Path("left").touch(), "left files"),
    (lambda: Path("executed").touch(), "executed"),
    (lambda: Path("../outside").touch(), "wrote outside"),
    (lambda: os._exit(3), "exit 3"),
    (eat, "memory"),
    (lambda: None, "ok"),
]


class Misbehaving:
    name = "misbehaving"
    batch, limit_s, uses_files = 20, 2.0, True

    def prepare(self) -> None:
        pass

    def make(self, key: str, number: int, keep: frozenset[int] | None = None) -> int:
        return number

    def run(self, made: int, folder: Path) -> Outcome:
        with (folder.parents[3] / "log").open("a") as log:
            log.write(f"{made}\n")
        outcome = guarded(DEEDS[made % len(DEEDS)][0], (ValueError,), NAMES)
        return outcome if outcome.is_finding else strange_files(folder, ()) or outcome


def ran(tmp_path: Path) -> list[int]:
    return [int(line) for line in (tmp_path / "log").read_text().splitlines()]


def found(campaign: Campaign) -> dict[int, str]:
    groups = campaign.groups.items()
    return {number: verdict for (verdict, _), group in groups for number in group.cases}


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="limits and folders are those of Linux")
def test_every_misdeed_is_blamed_on_its_case(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "PEAK_BYTES", 100_000_000)
    out = tmp_path / "out"
    campaign = Campaign(Misbehaving(), seed=0, out=out, jobs=1)
    campaign.run(len(DEEDS))
    wrong = {n: verdict for n, (_, verdict) in enumerate(DEEDS) if verdict not in ("ok", "refused")}
    assert found(campaign) == wrong
    assert (campaign.verdicts["ok"], campaign.verdicts["refused"]) == (2, 1)
    assert ran(tmp_path) == list(range(len(DEEDS)))
    assert not (out / "work").exists()


def test_a_campaign_goes_on_where_it_stopped(tmp_path: Path) -> None:
    out = tmp_path / "out"
    Campaign(Misbehaving(), seed=0, out=out).run(2)
    # Cut short while it was written.
    with (out / "results.jsonl").open("a") as file:
        file.write('{"first": 2, "la')
    second = Campaign(Misbehaving(), seed=0, out=out, jobs=2)
    assert second.verdicts == {"ok": 1, "refused": 1}
    second.run(4)
    assert ran(tmp_path) == [0, 1, 2, 3]
    third = Campaign(Misbehaving(), seed=0, out=out)
    assert third.verdicts.total() == 4
    assert found(third) == {2: "signal SIGSEGV", 3: "traceback"}
    third.run(4)
    assert ran(tmp_path) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="not of 1/misbehaving"):
        Campaign(Misbehaving(), seed=1, out=out)
    for line in (out / "results.jsonl").read_text().splitlines():
        json.loads(line)


def test_one_case_alone() -> None:
    class Alone(Misbehaving):
        def run(self, made: int, folder: Path) -> Outcome:
            return guarded(DEEDS[made][0], (ValueError,), NAMES)

    assert run_alone(Alone(), 1).verdict == "refused"
    assert run_alone(Alone(), 2).verdict == "signal SIGSEGV"


def test_shrinking_keeps_what_matters() -> None:
    assert shrink_bytes(b"a" * 500 + b"!" + b"b" * 300 + b"?", lambda data: b"!" in data) == b"!"

    class Edited(Misbehaving):
        def make(self, key: str, number: int, keep: frozenset[int] | None = None) -> Any:
            places = [place for place in range(4) if keep is None or place in keep]
            content = bytes(2 * place for place in places) + b"!" * (2 in places)
            edits = tuple(f"{place}: f" for place in places)
            return Input(kind="x", files={"f": content}, edits=edits)

    smallest = shrink(Edited(), "key", 0, lambda case: b"!" in case.files["f"])
    assert (smallest.edits, smallest.files["f"]) == (("2: f",), b"!")


def test_cases_are_kept_as_text() -> None:
    files = {"a": b"text\n", "b": b"\xff\x00"}
    case = Input(kind="Ogb", options={"name": "x"}, files=files, edits=("0: a",))
    assert from_json(to_json("readers", case)) == ("readers", case)
