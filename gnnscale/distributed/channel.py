"""Messages between two processes of one machine, over a socket without a name in any folder."""

from __future__ import annotations

import json
import os
import secrets
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from gnnscale.core import Array, Int32Array

#: A message begins with its kind, the elements that follow and the bytes of each, and numbers.
_HEADER = struct.Struct("=iqqqqq")
_NUM_NUMBERS = 3
_DTYPES: dict[int, np.dtype[Any]] = {
    each.itemsize: each for each in map(np.dtype, (np.uint8, np.int32, np.int64))
}
#: Process, user and group of the other end, as the system knows them.
_CREDENTIALS = struct.Struct("3i")
_NO_NUMBERS = (0,) * _NUM_NUMBERS


class MessageType(IntEnum):
    """What a message says."""

    SETUP = 1  #: plain values before the first step
    EXPECT = 2  #: the vertices of a worker's next step
    NOTHING = 3  #: its next step reads no rows
    END = 4  #: no step follows those that are expected
    READ = 5  #: a worker is to read these vertices of its next step, into these slots
    SKIP = 6  #: its next step reads no rows
    DONE = 7  #: what it was to read for its next step is there
    READY = 8  #: slots of the rows of the next step, which are there; rows, bytes, requests read
    SERVED = 9  #: the worker has taken its rows
    LEAVE = 10  #: it wants no more
    FAILED = 11  #: no more rows arrive, and why


@dataclass(frozen=True, kw_only=True)
class Message:
    """What arrived."""

    kind: MessageType
    numbers: tuple[int, ...] = _NO_NUMBERS
    array: Array  #: ``[n]``

    @property
    def rows(self) -> tuple[Array, Int32Array]:
        """Vertices, ``[n]``, and the slot of each."""
        count, itemsize, _ = self.numbers
        vertices = self.array[: count * itemsize].view(_DTYPES[itemsize])
        return vertices, self.array[count * itemsize :].view(np.int32)

    @property
    def values(self) -> Any:
        """Plain values."""
        return json.loads(self.array.tobytes())


class Channel:
    """One end of a connection; any thread may send, and one receives."""

    def __init__(self, connection: socket.socket) -> None:
        """Own ``connection`` from now on."""
        self._socket = connection
        self._sending = threading.Lock()

    def fileno(self) -> int:
        """Return the descriptor that can be waited for."""
        return self._socket.fileno()

    def send(
        self,
        kind: MessageType,
        *,
        numbers: tuple[int, ...] = _NO_NUMBERS,
        array: Array | None = None,
    ) -> None:
        """Send a message.

        Args:
            array: ``[n]`` of 1, 4 or 8 bytes an element.

        Raises:
            OSError: the other end is gone.
        """
        content: Array = np.zeros(0, np.uint8) if array is None else np.ascontiguousarray(array)
        header = _HEADER.pack(kind, len(content), content.itemsize, *numbers)
        with self._sending:
            self._socket.sendall(header)
            if len(content):
                self._socket.sendall(content.view(np.uint8).data)

    def send_rows(self, kind: MessageType, vertices: Array, slots: Int32Array) -> None:
        """Send vertices and the slot of each.

        Raises:
            OSError: the other end is gone.
        """
        parts = [np.ascontiguousarray(each).view(np.uint8) for each in (vertices, slots)]
        numbers = (len(vertices), vertices.itemsize, 0)
        self.send(kind, numbers=numbers, array=np.concatenate(parts))

    def send_values(self, kind: MessageType, values: Any) -> None:
        """Send plain values.

        Raises:
            OSError: the other end is gone.
        """
        self.send(kind, array=np.frombuffer(json.dumps(values).encode(), np.uint8))

    def receive(self) -> Message | None:
        """Wait for the next message; None if the other end is gone."""
        header = self._read(bytearray(_HEADER.size))
        if header is None:
            return None
        kind, count, itemsize, *numbers = _HEADER.unpack(header)
        content = self._read(bytearray(count * itemsize))
        if content is None:
            return None
        array = np.frombuffer(content, _DTYPES[itemsize])
        return Message(kind=MessageType(kind), numbers=tuple(numbers), array=array)

    def send_file(self, descriptor: int) -> None:
        """Give the other process a file.

        Raises:
            OSError: it is gone.
        """
        socket.send_fds(self._socket, [b"\0"], [descriptor])

    def receive_file(self) -> int:
        """Return a descriptor of the file that the other process gives.

        Raises:
            ConnectionError: it is gone.
        """
        _, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
        if not descriptors:
            raise ConnectionError("the other process is gone")
        return descriptors[0]

    def refuse(self) -> None:
        """Receive nothing any more; a thread that waits for a message gets none."""
        with suppress(OSError):  # the other end is gone
            self._socket.shutdown(socket.SHUT_RD)

    def hang_up(self) -> None:
        """Send nothing any more, either; a thread that sends fails."""
        with suppress(OSError):  # the other end is gone
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Release the connection, which no thread uses any more."""
        self._socket.close()

    def _read(self, into: bytearray) -> bytearray | None:
        view = memoryview(into)
        while len(view):
            try:
                count = self._socket.recv_into(view)
            except OSError:
                return None
            if count == 0:
                return None
            view = view[count:]
        return into


def pair() -> tuple[Channel, Channel]:
    """Return both ends of a connection within this process."""
    first, second = socket.socketpair()
    return Channel(first), Channel(second)


class Rendezvous:
    """A name by which other processes of this user, on this machine, find this one."""

    def __init__(self) -> None:
        """Listen."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.name = f"gnnscale-{os.getpid()}-{secrets.token_hex(8)}"
        self._socket.bind(f"\0{self.name}")
        self._socket.listen()

    def accept(self) -> Channel:
        """Wait for a process of this user."""
        while True:
            connection, _ = self._socket.accept()
            found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            if _CREDENTIALS.unpack(found)[1] == os.getuid():
                return Channel(connection)
            connection.close()

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()


def connect(name: str) -> Channel:
    """Connect to the process that listens by ``name``.

    Raises:
        OSError: nobody does.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(f"\0{name}")
    except OSError:
        connection.close()
        raise
    return Channel(connection)
