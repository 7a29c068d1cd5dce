"""The GPUs that NVLink joins, of a published machine, a file, or this machine; their cliques."""

import os
import re
from collections.abc import Sequence
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import ConfigError, Int64Array, nearest, shown
from gnnscale.core import gpu as nvml

#: Published machines whose links ship with the package.
MACHINES = ("dgx_a100", "dgx_v100", "siton")
#: The machine that this process runs on.
THIS_MACHINE = "nvml"
_OPTION = "partitioner.nvlink"
_MAX_GPUS = 1024
_MAX_LINKS = 1000
#: The longest file: a matrix of the most GPUs, some digits each.
_MAX_BYTES = 8 << 20
#: Cliques looked at for the largest; a machine's links have a few, a made-up matrix may have 3^341.
_MAX_CLIQUES = 100_000


def links_of(nvlink: str | None, *, option: str = _OPTION) -> Int64Array:
    """Return the number of links between each two GPUs, ``[num_gpus, num_gpus]``, symmetric.

    ``nvlink`` is one of ``MACHINES``, a file as ``read_links`` takes it, or ``nvml`` or None to ask
    NVML for those between the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves.

    Raises:
        ConfigError: no such machine or file, it is no such matrix, or there is no NVML or GPU.
    """
    if nvlink in (None, THIS_MACHINE):
        return _links_by_nvml(f"{option}={nvlink or 'null'}")
    assert nvlink is not None
    if nvlink in MACHINES:
        file = resources.files("gnnscale.partition") / "machines" / f"{nvlink}.csv"
        return _parse(file.read_text(), nvlink, option)
    path = Path(nvlink)
    if not path.is_file() and path.name == nvlink and not path.suffix:
        known = f"allowed are {', '.join((*MACHINES, THIS_MACHINE))}, or a file"
        raise ConfigError(f"{option}={shown(nvlink)}: {known}{nearest(nvlink, MACHINES)}")
    return read_links(path, option=option)


def read_links(path: Path, *, option: str = _OPTION) -> Int64Array:
    """Read a square matrix of link counts: a line per GPU, commas or blanks between the numbers.

    Lines that begin with ``#`` and empty ones are left out.

    Raises:
        ConfigError: the file cannot be read or is no such matrix.
    """
    if path.exists() and not path.is_file():  # a pipe might never end, or begin
        raise ConfigError(f"{option}={shown(path)}: not a regular file")
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", error)
        raise ConfigError(f"{option}={shown(path)}: {reason}") from None
    if len(raw) > _MAX_BYTES:
        raise ConfigError(f"{option}={shown(path)}: more than {_MAX_BYTES >> 20} MiB")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{option}={shown(path)}: not a text file") from None
    return _parse(text, str(path), option)


def _parse(text: str, source: str, option: str) -> Int64Array:
    def refused(reason: str) -> ConfigError:
        return ConfigError(f"{option}={shown(source)}: {reason}")

    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines:
        raise refused("empty, a matrix is needed")
    if len(lines) > _MAX_GPUS:
        raise refused(f"{len(lines):,} lines, at most {_MAX_GPUS:,} GPUs")
    rows = []
    for number, line in enumerate(lines, 1):
        words = re.split(r"\s*,\s*|\s+", line)
        if len(words) != len(lines):
            raise refused(f"row {number} has {len(words)} numbers, there are {len(lines)} rows")
        for word in words:
            if not re.fullmatch(r"[0-9]{1,4}", word) or int(word) > _MAX_LINKS:
                raise refused(f"row {number}: {shown(word)}, allowed are 0 to {_MAX_LINKS}")
        rows.append([int(word) for word in words])
    links = np.array(rows, np.int64)
    if links.diagonal().any():
        gpu = int(links.diagonal().nonzero()[0][0])
        raise refused(f"GPU {gpu} is linked to itself, the diagonal must be 0")
    if (links != links.T).any():
        first, second = (int(place) for place in np.argwhere(links != links.T)[0])
        raise refused(f"not symmetric, GPUs {first} and {second} have different links")
    return links


def _links_by_nvml(asked: str) -> Int64Array:
    remedy = f"; name one of {', '.join(MACHINES)}, or a file"
    try:
        with nvml.opened() as library:
            links = _ask(library)
        gpus = list(range(len(links)))
        if "CUDA_VISIBLE_DEVICES" in os.environ:
            gpus = [each.index for each in nvml.find_gpus().devices]
    except nvml.NvmlError as error:
        raise ConfigError(f"{asked}: {error}{remedy}") from None
    if not gpus:
        raise ConfigError(f"{asked}: this machine has no GPU{remedy}")
    found: Int64Array = links[np.ix_(gpus, gpus)]
    return found


def links_between(gpus: Sequence[int]) -> tuple[tuple[int, ...], ...] | None:
    """Return the number of links between each two GPUs of this machine.

    Args:
        gpus: numbers among those that ``CUDA_VISIBLE_DEVICES`` leaves.

    Returns:
        A row for each; None if NVML does not answer, or has no such GPU.
    """
    try:
        links = links_of(THIS_MACHINE)
    except ConfigError:
        return None
    if not gpus or max(gpus) >= len(links):
        return None
    return tuple(map(tuple, links[np.ix_(gpus, gpus)].tolist()))


def _ask(library: Any) -> Int64Array:
    """Count active links; GPUs on an NVSwitch are all joined, by as many links as both have."""
    gpus = [library.nvmlDeviceGetHandleByIndex(i) for i in range(library.nvmlDeviceGetCount())]
    index = {_address(library.nvmlDeviceGetPciInfo(gpu)): i for i, gpu in enumerate(gpus)}
    links = np.zeros((len(gpus), len(gpus)), np.int64)
    switched = np.zeros(len(gpus), np.int64)
    for i, gpu in enumerate(gpus):
        for link in range(library.NVML_NVLINK_MAX_LINKS):
            try:
                if not library.nvmlDeviceGetNvLinkState(gpu, link):
                    continue
                other = _address(library.nvmlDeviceGetNvLinkRemotePciInfo(gpu, link))
            except (library.NVMLError_NotSupported, library.NVMLError_InvalidArgument):
                break  # no NVLink, or no more of them
            if other in index:
                links[i, index[other]] += 1
            else:
                switched[i] += 1
    links = np.maximum(links, np.minimum.outer(switched, switched))
    np.fill_diagonal(links, 0)
    # A link that one side has seen go down is none.
    both: Int64Array = np.minimum(links, links.T)
    return both


def _address(info: Any) -> tuple[int, int, int]:
    return int(info.domain), int(info.bus), int(info.device)


def disjoint_cliques(links: Int64Array) -> tuple[tuple[int, ...], ...]:
    """Return cliques of GPUs, each of which NVLink joins with each other, the largest first.

    The largest clique is removed from ``links`` (``[num_gpus, num_gpus]``, symmetric) until no GPU
    is left (Legion, section 4.1, S1); of equal ones that of the lowest numbers.

    Raises:
        ConfigError: the matrix has too many cliques.
    """
    import networkx

    graph = networkx.from_numpy_array(links > 0)
    cliques = []
    while graph:
        found = list(islice(networkx.find_cliques(graph), _MAX_CLIQUES + 1))
        if len(found) > _MAX_CLIQUES:
            raise ConfigError(f"{_OPTION}: more than {_MAX_CLIQUES:,} cliques, no machine's links")
        largest = min((tuple(sorted(each)) for each in found), key=lambda each: (-len(each), each))
        cliques.append(largest)
        graph.remove_nodes_from(largest)
    return tuple(cliques)
