"""NVLink topology of a published machine, a file, or this machine, and its cliques of GPUs."""

import os
import re
from collections.abc import Sequence
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import ConfigError, Int64Array, brief, suggestion
from gnnscale.core import gpu as nvml

#: Published machines; their link matrices ship with the package.
MACHINES = ("dgx_a100", "dgx_v100", "siton")
#: Name of the machine of this process.
THIS_MACHINE = "nvml"
_OPTION = "partitioner.nvlink"
_MAX_GPUS = 1024
_MAX_LINKS = 1000
#: Largest size of a file.
_MAX_BYTES = 8 << 20
#: Largest number of cliques: a machine has a few, an arbitrary matrix of 1024 GPUs up to 3^341.
_MAX_CLIQUES = 100_000


def find_links(nvlink: str | None, *, option: str = _OPTION) -> Int64Array:
    """Return the number of links between each two GPUs, ``[num_gpus, num_gpus]``, symmetric.

    ``nvlink`` is one of ``MACHINES``, or a file for ``read_links``; ``nvml`` or None for the GPUs
    of this machine that ``CUDA_VISIBLE_DEVICES`` selects.
    """
    if nvlink in (None, THIS_MACHINE):
        return _links_by_nvml(f"{option}={nvlink or 'null'}")
    assert nvlink is not None
    if nvlink in MACHINES:
        file = resources.files("gnnscale.partition") / "machines" / f"{nvlink}.csv"
        return _parse(file.read_text(), nvlink, option)
    path = Path(nvlink)
    if not path.is_file() and path.name == nvlink and not path.suffix:
        names = f"expected one of {', '.join((*MACHINES, THIS_MACHINE))}, or a file"
        raise ConfigError(f"{option}={brief(nvlink)}: {names}{suggestion(nvlink, MACHINES)}")
    return read_links(path, option=option)


def read_links(path: Path, *, option: str = _OPTION) -> Int64Array:
    """Return a file's square matrix of link counts, a line per GPU; ``#`` begins a comment."""
    if path.exists() and not path.is_file():  # reading a pipe may block forever
        raise ConfigError(f"{option}={brief(path)}: expected a regular file")
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", error)
        raise ConfigError(f"{option}={brief(path)}: {reason}") from None
    if len(raw) > _MAX_BYTES:
        raise ConfigError(f"{option}={brief(path)}: expected at most {_MAX_BYTES >> 20} MiB")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{option}={brief(path)}: expected a text file") from None
    return _parse(text, str(path), option)


def _parse(text: str, source: str, option: str) -> Int64Array:
    def error(reason: str) -> ConfigError:
        return ConfigError(f"{option}={brief(source)}: {reason}")

    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines:
        raise error("expected a matrix, got an empty file")
    if len(lines) > _MAX_GPUS:
        raise error(f"expected at most {_MAX_GPUS:,} GPUs, got {len(lines):,} lines")
    rows = []
    for number, line in enumerate(lines, 1):
        words = re.split(r"\s*,\s*|\s+", line)
        if len(words) != len(lines):
            raise error(f"row {number}: expected {len(lines)} numbers, got {len(words)}")
        for word in words:
            if not re.fullmatch(r"[0-9]{1,4}", word) or int(word) > _MAX_LINKS:
                raise error(f"row {number}: expected 0 to {_MAX_LINKS}, got {brief(word)}")
        rows.append([int(word) for word in words])
    links = np.array(rows, np.int64)
    if links.diagonal().any():
        gpu = int(links.diagonal().nonzero()[0][0])
        raise error(f"expected a diagonal of 0, GPU {gpu} is linked to itself")
    if (links != links.T).any():
        first, second = (int(index) for index in np.argwhere(links != links.T)[0])
        raise error(f"expected a symmetric matrix, GPUs {first} and {second} differ")
    return links


def _links_by_nvml(setting: str) -> Int64Array:
    remedy = f"; name one of {', '.join(MACHINES)}, or a file"
    try:
        with nvml.nvml_session() as library:
            links = _read_links(library)
        gpus = list(range(len(links)))
        if "CUDA_VISIBLE_DEVICES" in os.environ:
            gpus = [device.index for device in nvml.find_gpus().devices]
    except nvml.NvmlError as error:
        raise ConfigError(f"{setting}: {error}{remedy}") from None
    if not gpus:
        raise ConfigError(f"{setting}: this machine has no GPU{remedy}")
    visible: Int64Array = links[np.ix_(gpus, gpus)]
    return visible


def links_between(gpus: Sequence[int]) -> tuple[tuple[int, ...], ...] | None:
    """Return the number of NVLinks between each two of the visible ``gpus``. None: unknown."""
    try:
        links = find_links(THIS_MACHINE)
    except ConfigError:
        return None
    if not gpus or max(gpus) >= len(links):
        return None
    return tuple(map(tuple, links[np.ix_(gpus, gpus)].tolist()))


def _read_links(library: Any) -> Int64Array:
    """Return the NVLinks between all GPUs of this machine that are active at both ends, ``[n, n]``.

    Two GPUs on an NVSwitch have the smaller of their numbers of links to it.
    """
    gpus = [library.nvmlDeviceGetHandleByIndex(i) for i in range(library.nvmlDeviceGetCount())]
    index = {_address(library.nvmlDeviceGetPciInfo(gpu)): i for i, gpu in enumerate(gpus)}
    links = np.zeros((len(gpus), len(gpus)), np.int64)
    switched = np.zeros(len(gpus), np.int64)
    for i, gpu in enumerate(gpus):
        for link in range(library.NVML_NVLINK_MAX_LINKS):
            try:
                if not library.nvmlDeviceGetNvLinkState(gpu, link):
                    continue
                peer = _address(library.nvmlDeviceGetNvLinkRemotePciInfo(gpu, link))
            except (library.NVMLError_NotSupported, library.NVMLError_InvalidArgument):
                break  # no further NVLink
            if peer in index:
                links[i, index[peer]] += 1
            else:
                switched[i] += 1
    links = np.maximum(links, np.minimum.outer(switched, switched))
    np.fill_diagonal(links, 0)
    # A link counts only if both sides report it as active.
    active: Int64Array = np.minimum(links, links.T)
    return active


def _address(info: Any) -> tuple[int, int, int]:
    return int(info.domain), int(info.bus), int(info.device)


def disjoint_cliques(links: Int64Array) -> tuple[tuple[int, ...], ...]:
    """Return disjoint cliques of GPUs linked by NVLink, the largest first.

    The largest clique is removed from ``links`` (``[num_gpus, num_gpus]``, symmetric) until all
    GPUs are removed (Legion, section 4.1, S1). The clique of the lowest GPU indices breaks ties.
    """
    import networkx

    graph = networkx.from_numpy_array(links > 0)
    cliques = []
    while graph:
        candidates = list(islice(networkx.find_cliques(graph), _MAX_CLIQUES + 1))
        if len(candidates) > _MAX_CLIQUES:
            raise ConfigError(f"{_OPTION}: expected at most {_MAX_CLIQUES:,} cliques, got more")
        ordered = (tuple(sorted(clique)) for clique in candidates)
        largest = min(ordered, key=lambda clique: (-len(clique), clique))

        cliques.append(largest)
        graph.remove_nodes_from(largest)
    return tuple(cliques)
