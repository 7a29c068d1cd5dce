"""Rates of a GPU that were measured: what the performance model goes by (eq. 7 to 12)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from json import dumps
from pathlib import Path
from typing import Annotated

import numpy as np
from msgspec import Meta

from gnnscale.core import ConfigError, decode, home, write_atomically
from gnnscale.planner.cuda_spec import Cuda

Rate = Annotated[float, Meta(gt=0, le=1e18)]
#: The largest file of rates that is read.
_MAX_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class CardRates:
    """What a card does in a second, and what a step's launches take."""

    macs_per_s: Rate  #: multiply-accumulates of float32 products
    memory_bandwidth: Rate  #: bytes of random rows that are aggregated while they are read
    copy_bandwidth: Rate  #: bytes of a copy from pinned host memory
    #: bytes of a row, and bytes a second of random rows of that width in the host's memory
    link: tuple[tuple[Rate, Rate], ...]
    sampled_edges_per_s: Rate  #: edges that are sampled and relabelled, with lists on the card
    launch_s: Annotated[float, Meta(ge=0, le=1)]  #: seconds of a recorded step without any work

    def __post_init__(self) -> None:
        if not self.link:
            raise ValueError("link: no width was measured")

    def link_bandwidth(self, row_bytes: int) -> float:
        """Return the bytes a second of rows of ``row_bytes``, between the widths measured."""
        widths, rates = zip(*sorted(self.link), strict=True)
        return float(np.interp(np.log(max(row_bytes, 1)), np.log(widths), rates))

    def of(self, device: Cuda, *, row_bytes: int) -> Cuda:
        """Return ``device`` with these rates, but for those that the user has given.

        Args:
            row_bytes: of a feature row.
        """
        usual, found = Cuda(), device
        if device.macs_per_s == usual.macs_per_s:
            found = replace(found, macs_per_s=self.macs_per_s)
        if device.memory_bandwidth == usual.memory_bandwidth:
            found = replace(found, memory_bandwidth=self.memory_bandwidth)
        if device.link_bandwidth == usual.link_bandwidth:
            found = replace(found, link_bandwidth=self.link_bandwidth(row_bytes))
        if device.sampled_edges_per_s == usual.sampled_edges_per_s:
            found = replace(found, sampled_edges_per_s=self.sampled_edges_per_s)
        if device.launch_s == usual.launch_s:
            found = replace(found, launch_s=self.launch_s)
        return found


def kept_rates(uuid: str, driver: str, measure: Callable[[], CardRates]) -> CardRates:
    """Return the rates of a card, which are measured once for each driver and kept.

    They lie in ``${GNNSCALE_HOME:-~/.cache/gnnscale}/cuda``. A file that is damaged is replaced.
    """
    found = known_rates(uuid, driver)
    if found is None:
        found = measure()
        file = _file(uuid, driver)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, dumps(asdict(found)) + "\n", shared=True)
    return found


def _file(uuid: str, driver: str) -> Path:
    name = re.sub(r"[^A-Za-z0-9.-]", "_", f"rates-{uuid}-{driver}")
    return home() / "cuda" / f"{name}.json"


def known_rates(uuid: str, driver: str) -> CardRates | None:
    """Return the rates of a card that are kept; None without, or if the file is damaged."""
    file = _file(uuid, driver)
    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_BYTES)
        return decode(CardRates, content, source=str(file))
    except (OSError, ConfigError, ValueError):
        return None
