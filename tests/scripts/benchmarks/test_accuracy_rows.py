"""The table of rel-f1's tasks beside the published metrics."""

from benchmarks.cases import accuracy_rows as script


def test_a_mean_is_compared_with_the_published_metric() -> None:
    better = script.row("driver-dnf", [73.0, 74.0])
    assert better == ["driver-dnf", "roc_auc", "73.500", "0.707", "2", "72.62", "75.29", "yes"]
    assert script.row("driver-dnf", [70.0])[-4:] == ["1", "72.62", "75.29", "NO"]
    # Of errors, less is better.
    assert script.row("driver-position", [3.9])[-1] == "yes"
    assert script.row("driver-position", [4.1])[-1] == "NO"
