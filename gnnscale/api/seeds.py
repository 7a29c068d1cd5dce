"""Training with several seeds, and the mean and deviation of its results."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

from gnnscale.api.result import Result
from gnnscale.core import MAX_SEED, ConfigError, brief, check_range, listed_numbers
from gnnscale.core.config import check_unused, removed_on_error, separate_hydra
from gnnscale.core.config.compose import compose
from gnnscale.core.locks import sole_writer
from gnnscale.report.sweep import write_sweep

#: Largest number of runs of one call.
_MAX_RUNS = 10_000


@dataclass(frozen=True, kw_only=True, repr=False)
class SeedResults:
    """Results of runs that differ in their seeds alone.

    Example::

        results = gnnscale.train(graph, "sage", seeds=5)
        results.mean, results.std  # 0.81, 0.02
        results.runs[0].predict("test")
    """

    runs: tuple[Result, ...]  #: the results, in the order of the seeds
    directory: Path  #: folder of the run directories, with ``report.html`` over all runs

    @property
    def test_metrics(self) -> list[float | None]:
        """Test metric of each run. None: it is undefined."""
        return [run.test_metric for run in self.runs]

    @property
    def mean(self) -> float | None:
        """Mean of the test metrics that are defined. None: none is."""
        metrics = self._defined_metrics
        return statistics.fmean(metrics) if metrics else None

    @property
    def std(self) -> float | None:
        """Standard deviation of the test metrics, with n - 1. None: fewer than two are defined."""
        metrics = self._defined_metrics
        return statistics.stdev(metrics) if len(metrics) > 1 else None

    @property
    def _defined_metrics(self) -> list[float]:
        return [metric for metric in self.test_metrics if metric is not None]

    def __repr__(self) -> str:
        """Return one line: mean and deviation of the test metric, number of runs, directory."""
        num_defined = len(self._defined_metrics)
        defined = "" if num_defined == len(self.runs) else f", defined in {num_defined}"
        mean = "not defined" if self.mean is None else f"{self.mean:.4f}"
        spread = "" if self.std is None else f" ± {self.std:.4f}"
        return (
            f"<gnnscale.SeedResults: test {self.runs[0].metric} {mean}{spread} over "
            f"{len(self.runs)} seeds{defined}, directory={str(self.directory)!r}>"
        )


def listed_seeds(seeds: Any, options: Mapping[str, Any], resume: object) -> list[int] | None:
    """Return the seeds of a call of ``train`` as different numbers; n stands for 0 to n - 1.

    ConfigError: there are none, or also a seed in ``options``, or ``resume``.
    """
    if seeds is None:
        return None
    if "seed" in options:
        raise ConfigError(f"seeds={brief(seeds)}: expected none beside seed={options['seed']}")
    if resume is not None:
        raise ConfigError(f"seeds={brief(seeds)}: expected none with resume, which has one run")
    if isinstance(seeds, Integral) and not isinstance(seeds, bool):
        check_range("seeds", int(seeds), 1, _MAX_RUNS)
        return list(range(int(seeds)))
    numbers = listed_numbers("seeds", seeds, "[0, 1, 2], or a number of seeds, such as 3")
    if not numbers or len(set(numbers)) < len(numbers):
        raise ConfigError(f"seeds={brief(seeds)}: expected one or several different seeds")
    for seed in numbers:
        check_range("seeds", seed, 0, MAX_SEED)
    return numbers


def each_seed(
    train_once: Callable[..., Result], seeds: Sequence[int], directory: str | Path | None
) -> SeedResults:
    """Train with each of ``seeds`` into a folder of ``directory``, and report on all runs there.

    ``train_once`` takes the run directory, the ``seed`` and the run's number as ``job``.
    ``directory`` of None is a new one in ``outputs/sweep``.
    """
    if directory is None:
        with separate_hydra():
            directory = str(compose("train")[1].hydra.sweep.dir)
    folder = Path(directory).absolute()
    with removed_on_error(folder), sole_writer(folder, option="directory"):
        check_unused(folder, option="directory", jobs=True)
        runs = [train_once(folder / str(job), seed=seed, job=job) for job, seed in enumerate(seeds)]
        write_sweep(folder, sequential=True)
    return SeedResults(runs=tuple(runs), directory=folder)
