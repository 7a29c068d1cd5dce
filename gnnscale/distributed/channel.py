"""Messages between two processes of one machine, over an abstract Unix socket."""

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

#: Header of a message: its type, number and size of the elements, and three numbers.
_HEADER = struct.Struct("=iqqqqq")
_NUM_NUMBERS = 3
_DTYPES: dict[int, np.dtype[Any]] = {
    dtype.itemsize: dtype for dtype in map(np.dtype, (np.uint8, np.int32, np.int64))
}
#: Process id, user id and group id of the peer, from the system.
_CREDENTIALS = struct.Struct("3i")
_NO_NUMBERS = (0,) * _NUM_NUMBERS


class MessageType(IntEnum):
    """Type of a message between a worker and the server of feature rows."""

    SETUP = 1  #: plain values, before the first step
    EXPECT = 2  #: worker: vertices of the worker's next step
    NOTHING = 3  #: worker: the next step reads no rows
    END = 4  #: worker: no further steps
    READ = 5  #: server: the worker reads these vertices of its next step into these slots
    SKIP = 6  #: server: the worker reads no rows for its next step
    DONE = 7  #: worker: the rows of READ are in their slots
    READY = 8  #: server: slots of the next step's rows; numbers of rows, bytes and requests read
    SERVED = 9  #: worker: the rows of READY are copied
    LEAVE = 10  #: worker: no further requests
    FAILED = 11  #: server: no further rows, with the reason


@dataclass(frozen=True, kw_only=True)
class Message:
    """Message that a ``Channel`` has received: its type, three numbers and an array."""

    kind: MessageType
    numbers: tuple[int, ...] = _NO_NUMBERS
    array: Array  #: ``[n]``

    @property
    def rows(self) -> tuple[Array, Int32Array]:
        """``[n]`` vertices and the ``[n]`` buffer slots of their rows, sent by ``send_rows``."""
        count, itemsize, _ = self.numbers
        vertices = self.array[: count * itemsize].view(_DTYPES[itemsize])
        return vertices, self.array[count * itemsize :].view(np.int32)

    @property
    def values(self) -> Any:
        """Plain values of a message of ``send_values``."""
        return json.loads(self.array.tobytes())


class Channel:
    """One end of a connection between two processes; any thread may send, one thread receives.

    Sending raises OSError if the other end is gone.
    """

    def __init__(self, connection: socket.socket) -> None:
        """Take ownership of ``connection``."""
        self._socket = connection
        self._sending = threading.Lock()

    def fileno(self) -> int:
        """Return the descriptor, for ``select``."""
        return self._socket.fileno()

    def send(
        self,
        kind: MessageType,
        *,
        numbers: tuple[int, ...] = _NO_NUMBERS,
        array: Array | None = None,
    ) -> None:
        """Send a message of ``kind``, three ``numbers`` and an ``array``.

        Elements of the array have 1, 4 or 8 bytes.
        """
        content: Array = np.zeros(0, np.uint8) if array is None else np.ascontiguousarray(array)
        header = _HEADER.pack(kind, len(content), content.itemsize, *numbers)
        with self._sending:
            self._socket.sendall(header)
            if len(content):
                self._socket.sendall(content.view(np.uint8).data)

    def send_rows(self, kind: MessageType, vertices: Array, slots: Int32Array) -> None:
        """Send a message of ``kind`` with ``[n]`` vertices and the ``[n]`` slots of their rows."""
        parts = [np.ascontiguousarray(ids).view(np.uint8) for ids in (vertices, slots)]
        numbers = (len(vertices), vertices.itemsize, 0)
        self.send(kind, numbers=numbers, array=np.concatenate(parts))

    def send_values(self, kind: MessageType, values: Any) -> None:
        """Send plain values as JSON."""
        self.send(kind, array=np.frombuffer(json.dumps(values).encode(), np.uint8))

    def receive(self) -> Message | None:
        """Return the next message. None: the other end is gone, or this end refuses messages."""
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
        """Send a file descriptor."""
        socket.send_fds(self._socket, [b"\0"], [descriptor])

    def receive_file(self) -> int:
        """Receive a file descriptor; raise ConnectionError if the other end is gone."""
        _, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
        if not descriptors:
            raise ConnectionError("the other process is gone")
        return descriptors[0]

    def refuse(self) -> None:
        """Stop receiving: ``receive`` in another thread returns None."""
        with suppress(OSError):  # the other end is gone
            self._socket.shutdown(socket.SHUT_RD)

    def hang_up(self) -> None:
        """Stop sending and receiving: in other threads, ``send`` fails, ``receive`` gives None."""
        with suppress(OSError):  # the other end is gone
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; no thread may use it afterwards."""
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
    """Listening socket for processes of this user on this machine."""

    def __init__(self) -> None:
        """Listen under a random ``name``."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.name = f"gnnscale-{os.getpid()}-{secrets.token_hex(8)}"
        self._socket.bind(f"\0{self.name}")
        self._socket.listen()

    def accept(self) -> Channel:
        """Return a channel to the next process of this user that connects; refuse other users."""
        while True:
            connection, _ = self._socket.accept()
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            if _CREDENTIALS.unpack(peer)[1] == os.getuid():
                return Channel(connection)
            connection.close()

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


def connect(name: str) -> Channel:
    """Return a channel to the process that listens under ``name``; OSError: there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(f"\0{name}")
    except OSError:
        connection.close()
        raise
    return Channel(connection)
