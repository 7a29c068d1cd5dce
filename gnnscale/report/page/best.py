"""The best options of a sweep by validation, and the options that are as good within the noise."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

Jobs = Sequence[Mapping[str, Any]]
#: Probability of the intervals of differences.
CONFIDENCE = 0.95
#: Largest number of choices that a sentence names.
_MAX_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Options without the seed, and their jobs."""

    options: dict[str, Any]
    valid: dict[str, float]  #: validation metric by seed; with equal seeds, of the last job
    jobs: Jobs

    @property
    def mean(self) -> float:
        """Mean of the validation metric over seeds."""
        return statistics.fmean(self.valid.values())


@dataclass(frozen=True, kw_only=True)
class Best:
    """The choice of the best mean validation metric."""

    choice: Choice
    #: choices whose difference from the best may be chance: the interval has 0
    similar: tuple[Choice, ...]
    #: choices that share fewer than two seeds with the best, so that no interval is known
    unknown: tuple[Choice, ...]

    def sentence(self, metric: str, label: Callable[[Mapping[str, Any]], str]) -> str:
        """Return a sentence on the confidence in the choice; empty without other choices.

        ``label`` gives the text of options.
        """
        parts = []
        if self.similar:
            named = [label(choice.options) for choice in self.similar[:_MAX_NAMED]]
            more = len(self.similar) - len(named)
            further = f"; and {more} more" if more else ""
            parts.append(f"not distinguishable at {CONFIDENCE:.0%}: {'; '.join(named)}{further}")
        if self.unknown:
            number = f"{len(self.unknown)} other choice{'s' if len(self.unknown) > 1 else ''}"
            parts.append(
                f"{number} may differ by chance: the {metric} of two or more equal seeds would tell"
            )
        return ", and ".join(parts)


def find_best(jobs: Jobs, *, lower_is_better: bool) -> Best | None:
    """Return the choice with the best mean validation metric over its seeds.

    Choices with several seeds precede choices with one, whose metric may be a lucky draw. Two
    choices are compared over the seeds that both have: a paired t interval of the difference. None:
    no job has a validation metric.
    """
    choices = _choices(jobs)
    if not choices:
        return None
    repeated = [choice for choice in choices if len(choice.valid) > 1] or choices
    best = (min if lower_is_better else max)(repeated, key=lambda choice: choice.mean)
    verdicts = [(choice, _may_be_chance(best, choice)) for choice in choices if choice is not best]
    return Best(
        choice=best,
        similar=tuple(choice for choice, by_chance in verdicts if by_chance),
        unknown=tuple(choice for choice, by_chance in verdicts if by_chance is None),
    )


def _choices(jobs: Jobs) -> list[Choice]:
    grouped: dict[tuple[tuple[str, Any], ...], list[Mapping[str, Any]]] = {}
    for job in jobs:
        if job["valid_metric"] is not None:
            key = tuple((name, value) for name, value in job["options"].items() if name != "seed")
            grouped.setdefault(key, []).append(job)
    return [
        Choice(
            options=dict(key),
            valid={str(job["options"].get("seed")): job["valid_metric"] for job in group},
            jobs=group,
        )
        for key, group in grouped.items()
    ]


def _may_be_chance(best: Choice, other: Choice) -> bool | None:
    """Whether the interval of the difference has 0; None: fewer than two seeds are shared."""
    from scipy.special import stdtrit

    shared = best.valid.keys() & other.valid.keys()
    if len(shared) < 2:
        return None
    differences = [best.valid[seed] - other.valid[seed] for seed in sorted(shared)]
    half = stdtrit(len(shared) - 1, (1 + CONFIDENCE) / 2) * sqrt(
        statistics.variance(differences) / len(shared)
    )
    return bool(abs(statistics.fmean(differences)) <= half)
