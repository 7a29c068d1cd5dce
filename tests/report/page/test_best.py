from typing import Any

import pytest

from gnnscale.report.page.best import find_best


def jobs(**values: list[float | None]) -> list[dict[str, Any]]:
    """Return jobs of models, with the validation metric of each seed from 0."""
    return [
        {"options": {"model": model, "seed": str(seed)}, "valid_metric": value}
        for model, each in values.items()
        for seed, value in enumerate(each)
    ]


def verdict(
    found: list[dict[str, Any]], *, lower: bool = False
) -> tuple[str, list[str], list[str]]:
    best = find_best(found, lower_is_better=lower)
    assert best is not None
    names = [[each.options["model"] for each in part] for part in (best.similar, best.unknown)]
    return best.choice.options["model"], names[0], names[1]


def test_the_interval_of_the_difference_by_hand() -> None:
    """Differences 1, 2, 3: mean 2, deviation 1, t of 2 degrees of freedom 4.303.

    The interval is 2 +- 4.303 / sqrt(3) = 2 +- 2.484, which has 0; a constant difference has not.
    """
    assert verdict(jobs(a=[1, 2, 3], b=[2, 4, 6])) == ("b", ["a"], [])
    assert verdict(jobs(a=[1, 2, 3], b=[2.4, 4.4, 6.4])) == ("b", ["a"], [])
    assert verdict(jobs(a=[1, 2, 3], b=[2.5, 4.5, 6.5])) == ("b", [], [])
    assert verdict(jobs(a=[1, 2, 3], b=[3.4, 4.4, 5.4])) == ("b", [], [])
    assert verdict(jobs(a=[0.5, 0.9], b=[0.4, 0.8])) == ("a", [], [])
    assert verdict(jobs(a=[0.5, 0.9], b=[0.4, 0.8]), lower=True) == ("b", [], [])
    assert verdict(jobs(a=[0.5, 0.5], b=[0.5, 0.5])) == ("a", ["b"], [])


def test_a_lucky_draw_of_one_seed_is_not_the_best() -> None:
    assert verdict(jobs(lucky=[0.99], a=[0.5, 0.6], b=[0.4, 0.45])) == ("a", ["b"], ["lucky"])
    assert verdict(jobs(a=[0.5], b=[0.6], failed=[None])) == ("b", [], ["a"])
    assert find_best(jobs(a=[None]), lower_is_better=False) is None


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (jobs(a=[1, 2, 3]), ""),
        (jobs(a=[1, 2], b=[3, 5]), "not distinguishable at 95%: a"),
        (
            jobs(a=[0.5], b=[0.6], c=[0.4]),
            "2 other choices may differ by chance: the accuracy of two or more equal seeds would "
            "tell",
        ),
        (
            jobs(**{name: [1.0, 2.0] for name in "abcdefgh"}),
            "not distinguishable at 95%: b; c; d; e; f; and 2 more",
        ),
    ],
)
def test_a_sentence_on_the_confidence(found: Any, sentence: str) -> None:
    best = find_best(found, lower_is_better=False)
    assert best is not None
    assert best.sentence("accuracy", lambda options: options["model"]) == sentence
