"""Card behind XRT's Python interface: kernels, buffers, transfers and errors of one line.

It imports no framework but NumPy. The caller passes the driver module, ``pyxrt`` or one with its
interface, so that the code is the same for a card, XRT's emulation, and a simulated card.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnscale.core import Array, UInt8Array, UInt32Array

_PAGE = 4096
#: Values of ``ert_cmd_state`` of an ended run; pyxrt does not name the running state.
_ENDED = ("COMPLETED", "ERROR", "ABORT", "TIMEOUT", "NORESPONSE", "SKERROR", "SKCRASHED")
#: A wait sleeps for this fraction of the time so far between polls, within limits in seconds.
_PAUSE, _MIN_PAUSE, _MAX_PAUSE = 0.05, 20e-6, 1e-3

_SET_UP = "`xrt-smi examine` lists the cards; `source /opt/xilinx/xrt/setup.sh` sets XRT up"
#: Advice for errors of loading a bitstream.
BUILT_FOR = "is it built for this card and for so many compute units?"


class BoardError(RuntimeError):
    """Failure of a board. The message is one line."""


class BoardMemoryError(BoardError):
    """Failure to allocate a buffer that exceeds a board's memory. The message is one line."""


@dataclass
class BoardBuffer:
    """Buffer in a board's memory: XRT's object ``bo``, its mapping on the host, and its used bytes.

    The mapping is None if only the device accesses the buffer.
    """

    bo: Any
    host: UInt8Array | None
    capacity: int
    num_bytes: int

    def words(self) -> UInt32Array:
        """Return a copy of the mapping's used bytes as 32-bit words.

        The copy stays valid without ``bo``, unlike the mapping.
        """
        assert self.host is not None
        copied: UInt32Array = self.host[: self.num_bytes // 4 * 4].view(np.uint32).copy()
        return copied


class XrtCard:
    """Card with a loaded bitstream, driven by XRT's Python interface."""

    def __init__(
        self, xrt: Any, *, index: int, bitstream: str, kernel: str, compute_units: int
    ) -> None:
        self.label = f"board {index}"
        self._xrt = xrt
        self._to_device = xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE
        self._from_device = xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE
        states = xrt.ert_cmd_state
        self._ended = {getattr(states, f"ERT_CMD_STATE_{name}"): name for name in _ENDED}
        with self.doing("opening the card", _SET_UP):
            self._device: Any = xrt.device(index)
            self.label += f" ({self._device.get_info(xrt.xrt_info_device.name)})"
        with self.doing(f"loading {bitstream}", BUILT_FOR):
            image = xrt.xclbin(bitstream)
            self.num_arguments = _count_arguments(kernel, image)
            names = [f"{kernel}:{{{kernel}_{unit + 1}}}" for unit in range(compute_units)]
            self.kernels = self._open_kernels(image, names)

    def new_buffer(
        self, capacity: int, num_bytes: int, group: int, *, device_only: bool
    ) -> BoardBuffer:
        """Return a new buffer of ``capacity`` bytes, rounded up to full pages, in bank ``group``.

        The first ``num_bytes`` are used. A ``device_only`` buffer has no mapping on the host, and 0
        used bytes.
        """
        capacity = -(-capacity // _PAGE) * _PAGE
        kind = self._xrt.bo
        if device_only:
            bo = kind(self._device, capacity, kind.device_only, group)
            return BoardBuffer(bo, None, capacity, 0)
        bo = kind(self._device, capacity, kind.normal, group)
        # NumPy copies to the mapping without the GIL; pyxrt's write blocks other threads.
        return BoardBuffer(bo, np.frombuffer(bo.map(), np.uint8), capacity, num_bytes)

    def send(self, memory: BoardBuffer, data: Array) -> None:
        """Copy the bytes of ``data`` to the beginning of a buffer on the card."""
        assert memory.host is not None
        memory.host[: data.nbytes] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        memory.bo.sync(self._to_device, data.nbytes, 0)

    def fetch(self, memory: BoardBuffer) -> UInt32Array:
        """Copy the used bytes of a buffer from the card, and return them as 32-bit words."""
        if memory.num_bytes:
            memory.bo.sync(self._from_device, memory.num_bytes, 0)
        return memory.words()

    def new_run(self, kernel: Any) -> Any:
        """Return a new run of a compute unit, without arguments and not started."""
        return self._xrt.run(kernel)

    def wait_for_end(self, run: Any, timeout_s: float) -> str | None:
        """Poll a run until it ends, and return its final state, such as ``COMPLETED``.

        None: the run still lasts after ``timeout_s`` seconds.
        """
        start = time.perf_counter()
        while True:
            state = run.state()
            if state in self._ended:
                run.wait()
                return self._ended[state]
            spent = time.perf_counter() - start
            if spent >= timeout_s:
                return None
            pause = min(max(_PAUSE * spent, _MIN_PAUSE), _MAX_PAUSE)
            time.sleep(min(pause, timeout_s - spent))

    def close(self) -> None:
        """Free the card and its compute units."""
        self.kernels = []
        self._device = None

    @contextmanager
    def doing(self, what: str, advice: str, kind: type[BoardError] = BoardError) -> Iterator[None]:
        """Turn an exception of the ``with`` block into a one-line error of class ``kind``.

        The line has the board, the activity ``what``, the exception and ``advice``. A BoardError is
        raised unchanged.
        """
        try:
            yield
        except BoardError:
            raise
        except Exception as error:
            raise kind(f"{self.label}: {what}: {one_line(error)}; {advice}") from error

    def _open_kernels(self, image: Any, names: list[str]) -> list[Any]:
        """Load the bitstream ``image``, and open and return the compute units called ``names``."""
        if hasattr(self._xrt, "hw_context"):
            uuid = self._device.register_xclbin(image)
            context = self._xrt.hw_context(self._device, uuid)
            return [self._xrt.kernel(context, name) for name in names]
        uuid = self._device.load_xclbin(image)
        shared = self._xrt.kernel.shared
        return [self._xrt.kernel(self._device, uuid, name, shared) for name in names]


def _count_arguments(kernel: str, image: Any) -> int:
    counts = {entry.get_name(): entry.get_num_args() for entry in image.get_kernels()}
    if kernel not in counts:
        raise RuntimeError(f"it has no kernel {kernel}, but {', '.join(counts) or 'none'}")
    return int(counts[kernel])


def one_line(text: object) -> str:
    """Return ``text`` on one line, or the name of its type if it is empty."""
    return " ".join(str(text).split()) or type(text).__name__
