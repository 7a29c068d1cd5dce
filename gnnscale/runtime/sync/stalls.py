"""Which process of a run all others wait for, when it is said, and when the run ends for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnnscale.runtime.sync.pulse import TRAINS, Pulse

__all__ = ["MAX_LOOK_S", "Stall", "Watch", "ended_by", "is_gone", "waiting_line"]

#: Seconds after which it is said that a process is waited for; then after twice as many, and so on.
_SAY_AFTER_S = 30.0
#: Seconds between two looks that count at most. More have passed where the process that looks was
#: itself stopped, by Ctrl-Z with all others, or had no processor.
MAX_LOOK_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Stall:
    """Processes that the others wait for.

    Attributes:
        ranks: their numbers; several where all wait for each other.
        seconds: how long they have not got on.
        silent: whether they tell nothing of themselves, or the same again and again.
        limited: whether the run ends for it at last.
    """

    ranks: tuple[int, ...]
    seconds: float
    silent: bool
    limited: bool


@dataclass(kw_only=True)
class _Seen:
    """When a process has last told something, and something new, and what."""

    beat: int = 0
    beat_at: float = 0.0
    signs: int = 0
    signs_at: float = 0.0


class Watch:
    """Follows the pulses of a run's processes.

    To blame is a process that tells nothing of itself; or, while others wait, one that does not
    wait and does not get on; or, where all wait, those with the fewest steps.
    """

    def __init__(self, size: int, *, limit_s: float | None) -> None:
        """Follow ``size`` processes; ``limit_s`` is ``runtime.stall_limit_s``."""
        self._seen = [_Seen() for _ in range(size)]
        self._limit_s = limit_s
        self._after_s = min(_SAY_AFTER_S, limit_s or _SAY_AFTER_S)
        self._now = 0.0
        self._said: tuple[int, ...] = ()
        self._since, self._next_s = 0.0, 0.0

    def look(self, pulses: Sequence[Pulse | None], seconds: float) -> Stall | None:
        """Return who is waited for.

        Args:
            pulses: what each process has told last, None for nothing yet.
            seconds: since the last look.
        """
        self._now += min(seconds, MAX_LOOK_S)
        for seen, pulse in zip(self._seen, pulses, strict=True):
            if pulse is not None and pulse.beat != seen.beat:
                seen.beat, seen.beat_at = pulse.beat, self._now
            if pulse is not None and pulse.signs != seen.signs:
                seen.signs, seen.signs_at = pulse.signs, self._now
        there = {i: each for i, each in enumerate(pulses) if each is None or not each.left}
        return self._silent(there) or self._stuck(there)

    def is_over(self, stall: Stall) -> bool:
        """Whether the run is to end."""
        return stall.limited and self._limit_s is not None and stall.seconds >= self._limit_s

    def is_due(self, stall: Stall) -> bool:
        """Whether it is to be said who is waited for; it counts as said."""
        since = self._now - stall.seconds
        if self._said != stall.ranks or since > self._since:
            self._said, self._since, self._next_s = stall.ranks, since, _SAY_AFTER_S
        due = stall.seconds >= self._next_s
        while self._next_s <= stall.seconds:
            self._next_s *= 2
        return due

    def _silent(self, there: dict[int, Pulse | None]) -> Stall | None:
        last = {i: self._now - self._seen[i].beat_at for i in there}
        silent = [i for i in there if last[i] >= self._after_s]
        if not silent:
            return None
        first = max(silent, key=lambda i: (there[i] is not None, last[i]))
        # One that has not started may still wait for the disk.
        return Stall(
            ranks=(first,), seconds=last[first], silent=True, limited=there[first] is not None
        )

    def _stuck(self, there: dict[int, Pulse | None]) -> Stall | None:
        """Return who does not get on while others wait for it."""
        found = {i: each for i, each in there.items() if each is not None}
        last = {i: self._now - self._seen[i].signs_at for i in found}
        stuck = [i for i in found if last[i] >= self._after_s]
        waiting = [i for i in stuck if found[i].waiting]
        if not waiting:
            return None
        if len(waiting) == len(there):
            fewest = min(each.steps for each in found.values())
            ranks = tuple(i for i in found if found[i].steps == fewest)
            seconds = min(last[i] for i in ranks)
            return Stall(ranks=ranks, seconds=seconds, silent=False, limited=True)
        busy = [i for i in stuck if i not in waiting]
        if not busy:
            return None
        first = max(busy, key=lambda i: (found[i].doing == TRAINS, last[i]))
        limited = found[first].doing == TRAINS
        return Stall(ranks=(first,), seconds=last[first], silent=False, limited=limited)


def is_gone(pulse: Pulse | None) -> bool:
    """Whether a process of this machine has ended; its connections say so to all who wait."""
    return pulse is not None and pulse.state in ("Z", "X")


def waiting_line(stall: Stall, pulses: Sequence[Pulse | None], names: Sequence[str]) -> str:
    """Say who is waited for.

    Args:
        stall: who it is.
        pulses: what each process has told last.
        names: of all devices, in the order of ranks.
    """
    who = _who(stall, pulses, names)
    if len(stall.ranks) > 1:
        return f"{who} wait for each other since {stall.seconds:.0f} s"
    return f"waiting for {who} since {stall.seconds:.0f} s"


def ended_by(
    stall: Stall, pulses: Sequence[Pulse | None], names: Sequence[str], *, limit_s: float | None
) -> str:
    """Say why the run ends; arguments as of ``waiting_line``, and the limit."""
    if len(stall.ranks) > 1:
        what = "have waited for each other"
    else:
        what = "has given no sign of life" if stall.silent else "has made no progress"
    option = f"runtime.stall_limit_s={limit_s:g}; null waits without end"
    return f"{_who(stall, pulses, names)} {what} for {stall.seconds:.0f} s ({option})"


def _who(stall: Stall, pulses: Sequence[Pulse | None], names: Sequence[str]) -> str:
    if len(stall.ranks) > 1:
        return f"workers {', '.join(names[i] for i in stall.ranks)}"
    (rank,) = stall.ranks
    pulse = pulses[rank]
    if pulse is None:
        return f"worker {names[rank]} (starting)"
    doing = "stopped" if pulse.state in ("T", "t") else pulse.doing
    return f"worker {names[rank]} (process {pulse.pid}, {doing})"
