"""State of the running job: its folder, its number in a sweep, and the options typed for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnscale.core.config import run_directory
from gnnscale.core.locks import sole_writer

if TYPE_CHECKING:
    from omegaconf import DictConfig


@contextmanager
def output_folder(
    options: DictConfig, names: Sequence[str], *, force: bool | None = None
) -> Iterator[Path]:
    """Create, lock and yield a folder for ``names``, with ``.hydra``; in a sweep, the job's."""
    if in_sweep():
        directory = job_directory()
        with sole_writer(directory, option="hydra.sweep.dir"):
            yield directory
        return
    folder, names = hydra_settings().run.dir, (run_directory.COMPOSED, *names)
    with run_directory.create_output_folder(folder, names, force=force) as directory:
        (directory / run_directory.COMPOSED).mkdir()
        run_directory.write_composed(directory, options, hydra_settings())
        yield directory


def check_output(names: Sequence[str], *, force: bool | None) -> None:
    """Raise ConfigError if the output folder has ``.hydra`` or files ``names``; not in a sweep."""
    if not in_sweep():
        directory = Path(hydra_settings().run.dir)
        run_directory.check_output(directory, (*names, run_directory.COMPOSED), force=force)


def job_directory() -> Path:
    """Return the run directory of this job; also for torchrun's ranks above 0."""
    hydra = hydra_settings()
    return Path(hydra.runtime.output_dir if in_sweep() else hydra.run.dir)


def job_number() -> int:
    """Return the number of this job in its sweep; 0 without a sweep."""
    return int(hydra_settings().job.num) if in_sweep() else 0


def in_sweep() -> bool:
    """Whether this job is part of a sweep."""
    from hydra.types import RunMode

    return bool(hydra_settings().mode == RunMode.MULTIRUN)


def hydra_settings() -> Any:
    """Return Hydra's settings of this job."""
    from hydra.core.hydra_config import HydraConfig

    return HydraConfig.get()


def typed_options(kind: str) -> list[str]:
    """Return options as typed, references unresolved; ``kind``: ``task``, or ``hydra``'s own."""
    from omegaconf import OmegaConf

    overrides: Any = OmegaConf.to_container(hydra_settings().overrides[kind], resolve=False)
    return [str(override) for override in overrides]
