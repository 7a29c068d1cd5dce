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
    """Create and lock the folder into which a command writes files called ``names``.

    A sweep has created the folders of its jobs. ``force`` is as for ``run_directory.check_output``.
    """
    from hydra.core.hydra_config import HydraConfig

    if in_sweep():
        directory = job_directory()
        with sole_writer(directory, option="hydra.sweep.dir"):
            yield directory
        return
    hydra: Any = HydraConfig.get()
    composed = run_directory.COMPOSED
    with run_directory.create_output_folder(
        hydra.run.dir, (composed, *names), force=force
    ) as directory:
        (directory / composed).mkdir()
        run_directory.write_composed(directory, options, hydra)
        yield directory


def check_output(names: Sequence[str], *, force: bool | None) -> None:
    """Raise ConfigError for a folder that contains a run or files called ``names``."""
    from hydra.core.hydra_config import HydraConfig

    if not in_sweep():
        directory = Path(HydraConfig.get().run.dir)
        run_directory.check_output(directory, (*names, run_directory.COMPOSED), force=force)


def job_directory() -> Path:
    """Return the run directory of this job; also for torchrun's ranks above 0."""
    from hydra.core.hydra_config import HydraConfig

    hydra = HydraConfig.get()
    return Path(hydra.runtime.output_dir if in_sweep() else hydra.run.dir)


def job_number() -> int:
    """Return the number of this job in its sweep; 0 without a sweep."""
    from hydra.core.hydra_config import HydraConfig

    return int(HydraConfig.get().job.num) if in_sweep() else 0


def in_sweep() -> bool:
    """Whether this job is part of a sweep."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    return bool(HydraConfig.get().mode == RunMode.MULTIRUN)


def typed_options(kind: str) -> list[str]:
    """Return the options as typed, references unresolved.

    Args:
        kind: ``task`` for the command's options, ``hydra`` for Hydra's settings.
    """
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    hydra: Any = HydraConfig.get()
    overrides: Any = OmegaConf.to_container(hydra.overrides[kind], resolve=False)
    return [str(override) for override in overrides]
