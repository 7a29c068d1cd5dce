"""The result of a run: metrics of its epochs, shown as text and in notebooks."""

from collections.abc import Mapping
from dataclasses import dataclass

from gnnscale.api.trained_run import TrainedRun
from gnnscale.core.notebook import html_table, report_link
from gnnscale.report.page.page import REPORT_FILE
from gnnscale.run import EpochRecord, TrainResult
from gnnscale.run.records import MeasuredRun

#: Number of epochs in a printed result, the last ones.
_LISTED_EPOCHS = 10
_HEADINGS = ("epoch", "loss", "validation", "seconds")


@dataclass(frozen=True, kw_only=True, repr=False)
class Result(MeasuredRun, TrainedRun):
    """Result of a run: metrics of its epochs, and inference with its best weights.

    Example::

        result = gnnscale.train(graph, "sage", epochs=20)
        result.test_metric  # 0.81
        result.predict("test")  # array([3, 0, 5, ...])
    """

    #: a record per epoch: ``epoch``, ``train_loss``, ``valid_metric`` and more
    history: tuple[EpochRecord, ...]
    #: test metrics of the weights of ``best_epoch`` by name, None for an undefined metric; empty if
    #: the run was stopped before, or the graph has no test part
    test_metrics: Mapping[str, float | None]
    metric: str  #: name of ``valid_metric`` and ``test_metric``

    @classmethod
    def of(cls, run: TrainedRun, result: TrainResult) -> "Result":
        """Return the result of a run that has just ended: ``run``, and metrics of ``result``."""
        return cls(
            directory=run.directory,
            config=run.config,
            history=tuple(result.history),
            test_metrics=result.test_metrics,
            metric=result.metric,
        )

    def __repr__(self) -> str:
        """Return one line: model, number of epochs, test metric and directory."""
        return (
            f"<gnnscale.Result: {self.config.model.name}, {len(self.history)} epochs, "
            f"{self._test_text}, directory={str(self.directory)!r}>"
        )

    def __str__(self) -> str:
        """Return a table of the last epochs, the metrics and the directory."""
        best = self.best_epoch
        validated = best is not None and self.history[best - 1].valid_metrics
        valid = f"validation {_text(self.valid_metric)}" if validated else "no validation"
        lines = [
            f"{self.config.model.name}: {self._test_text}, {valid}"
            + ("" if best is None else f", epoch {best}")
        ]
        if self.history:
            lines.append("{:>7}  {:>8}  {:>10}  {:>7}".format(*_HEADINGS))
            if len(self.history) > _LISTED_EPOCHS:
                lines.append(f"{'...':>7}")
            mark = "  best" if validated else "  kept"
            lines += [
                "{:>7}  {:>8}  {:>10}  {:>7}".format(*row) + (mark if row[0] == str(best) else "")
                for row in self._rows()
            ]
        return "\n".join([*lines, f"directory: {self.directory}"])

    def _repr_html_(self) -> str:
        """Return tables of the metrics and the last epochs, and a link to the report: Jupyter."""
        best = self.best_epoch
        metrics = [
            ("model", self.config.model.name),
            (f"test {self.metric}", _text(self.test_metric) if self.test_metrics else "no test"),
            (f"validation {self.metric}", _text(self.valid_metric)),
            ("best epoch", "none" if best is None else f"{best} of {len(self.history)}"),
            ("directory", str(self.directory)),
        ]
        mark = {str(best): f"{best} (best)"}
        epochs = [(mark.get(number, number), *cells) for number, *cells in self._rows()]
        tables = html_table(metrics) + (html_table(epochs, headings=_HEADINGS) if epochs else "")
        report = self.directory / REPORT_FILE
        return f"{tables}{report_link(report)}" if report.exists() else tables

    @property
    def _test_text(self) -> str:
        return f"test {self.metric} {_text(self.test_metric)}" if self.test_metrics else "no test"

    def _rows(self) -> list[tuple[str, ...]]:
        """Return the cells of the last epochs, below ``_HEADINGS``."""
        return [
            (
                str(record.epoch),
                f"{record.train_loss:.4f}",
                _text(record.valid_metric) if record.valid_metrics else "-",
                f"{record.epoch_time_s:.2f}",
            )
            for record in self.history[-_LISTED_EPOCHS:]
        ]


def _text(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.4f}"
