"""Measured rates of a GPU for the performance model (HyScale-GNN, eq. 7 to 12)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from gnnscale.core import ConfigError, decode, home, write_atomically
from gnnscale.planner.cuda_spec import Cuda

Rate = Annotated[float, Meta(gt=0, le=1e18)]
#: Size limit of a file of rates.
_MAX_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class CardRates:
    """Rates of one GPU, and the time of its kernel launches in a step."""

    macs_per_s: Rate  #: float32 multiply-accumulates per second
    memory_bandwidth: Rate  #: bytes per second of random rows, aggregated as they are read
    copy_bandwidth: Rate  #: bytes per second of a copy from pinned host memory
    #: pairs of a row's bytes and the bytes per second of random reads of such rows in host memory
    link: tuple[tuple[Rate, Rate], ...]
    sampled_edges_per_s: Rate  #: edges sampled and relabeled per second, topology on the GPU
    launch_s: Annotated[float, Meta(ge=0, le=1)]  #: seconds of a captured step without work

    def __post_init__(self) -> None:
        if not self.link:
            raise ValueError("link: expected at least one row width")

    def link_bandwidth(self, row_bytes: int) -> float:
        """Return the bytes per second of reads of ``row_bytes``, interpolated between widths."""
        widths, rates = zip(*sorted(self.link), strict=True)
        return float(np.interp(np.log(max(row_bytes, 1)), np.log(widths), rates))

    def of(self, device: Cuda, *, row_bytes: int) -> Cuda:
        """Return ``device`` with these rates in place of default rates; the user's rates stay.

        ``row_bytes`` of a feature row determine the bandwidth of the link.
        """
        rates = {
            "macs_per_s": self.macs_per_s,
            "memory_bandwidth": self.memory_bandwidth,
            "link_bandwidth": self.link_bandwidth(row_bytes),
            "sampled_edges_per_s": self.sampled_edges_per_s,
            "launch_s": self.launch_s,
        }
        default = Cuda()
        measured: dict[str, Any] = {
            name: rate
            for name, rate in rates.items()
            if getattr(device, name) == getattr(default, name)
        }
        return replace(device, **measured)


def load_or_measure_rates(uuid: str, driver: str, measure: Callable[[], CardRates]) -> CardRates:
    """Return the stored rates of a GPU, or measure and store them.

    A file in ``${GNNSCALE_HOME:-~/.cache/gnnscale}/cuda`` holds the rates per GPU (``uuid``) and
    version of the driver. A damaged file is replaced.
    """
    rates = read_rates(uuid, driver)
    if rates is None:
        rates = measure()
        file = _file(uuid, driver)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, dumps(asdict(rates)) + "\n", shared=True)
    return rates


def _file(uuid: str, driver: str) -> Path:
    name = re.sub(r"[^A-Za-z0-9.-]", "_", f"rates-{uuid}-{driver}")
    return home() / "cuda" / f"{name}.json"


def read_rates(uuid: str, driver: str) -> CardRates | None:
    """Return the stored rates of a GPU. None: the file is missing or damaged."""
    file = _file(uuid, driver)
    try:
        with file.open("rb") as stream:
            content = stream.read(_MAX_BYTES)
        return decode(CardRates, content, source=str(file))
    except (OSError, ConfigError, ValueError):
        return None
