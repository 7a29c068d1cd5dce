"""Prometheus's text exposition format, version 0.0.4."""

from collections.abc import Mapping

#: Name in Prometheus, factor to its base unit, and meaning of each value of a run.
_GAUGES = {
    "epoch": ("epoch", 1, "Epochs that are done"),
    "running": ("running", 1, "1 while the run trains, else 0"),
    "train_loss": ("train_loss", 1, "Mean training loss of the last epoch"),
    "valid_metric": ("valid_metric", 1, "Metric of the last validation"),
    "test_metric": ("test_metric", 1, "Test metric of the best epoch"),
    "lr": ("learning_rate", 1, "Learning rate of the last step"),
    "epoch_time_s": ("epoch_seconds", 1, "Seconds of training in the last epoch"),
    "eval_time_s": ("validation_seconds", 1, "Seconds of the last validation"),
    "mteps": ("edges_per_second", 1e6, "Edges traversed per second in the last epoch"),
    "peak_rss_bytes": ("peak_resident_bytes", 1, "Largest resident memory of a process of the run"),
}
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def text_format(run: str, values: Mapping[tuple[str, str], float]) -> str:
    """Return the values of a run as gauges with the labels ``run`` and, if not empty, ``metric``.

    ``values`` are by name, a key of ``_GAUGES``, and quality metric.
    """
    lines: list[str] = []
    for key, (name, factor, meaning) in _GAUGES.items():
        series = {metric: value for (name_, metric), value in values.items() if name_ == key}
        if series:
            lines += [f"# HELP gnnscale_{name} {meaning}.", f"# TYPE gnnscale_{name} gauge"]
        for metric, value in series.items():
            labels = {"run": run} | ({"metric": metric} if metric else {})
            texts = [f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items()]
            lines.append(f"gnnscale_{name}{{{','.join(texts)}}} {float(value * factor)!r}")
    return "\n".join([*lines, ""])
