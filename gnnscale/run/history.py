"""The epochs of a run in a file without a name, so that memory does not grow with them."""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import msgspec

from gnnscale.run.records import EpochRecord

#: Records that are written at a time: the file of a short run stays empty.
_NUM_WAITING = 64

_encoder = msgspec.msgpack.Encoder(enc_hook=lambda value: value.item())  # a number of NumPy
_decoder = msgspec.msgpack.Decoder(EpochRecord)


class _Spool:
    """Packed records by their number; any thread may read them while one appends."""

    def __init__(self) -> None:
        self._file: Any = None
        self._ends = array("q", [0])  # of the records in the file, after a zero
        self._waiting: list[bytes] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._ends) - 1 + len(self._waiting)

    def append(self, packed: bytes) -> None:
        with self._lock:
            self._waiting.append(packed)
            if len(self._waiting) >= _NUM_WAITING:
                self._write()

    def read(self, number: int) -> bytes:
        with self._lock:
            written = len(self._ends) - 1
            if number >= written:
                return self._waiting[number - written]
            begin, end = self._ends[number], self._ends[number + 1]
            return os.pread(self._file.fileno(), end - begin, begin)

    def _write(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 it is open as long as this is
            weakref.finalize(self, self._file.close)
        try:
            self._file.write(b"".join(self._waiting))
            self._file.flush()
        except OSError as error:
            raise OSError(error.errno, error.strerror, tempfile.gettempdir()) from None
        for packed in self._waiting:
            self._ends.append(self._ends[-1] + len(packed))
        self._waiting = []


class History(Sequence[EpochRecord]):
    """Records of epochs, of which none is kept in memory; it never changes.

    Args:
        records: the first ones.
    """

    def __init__(self, records: Iterable[EpochRecord] = ()) -> None:
        self._spool = _Spool()
        for record in records:
            self._spool.append(_encoder.encode(record))
        self._length = len(self._spool)

    def appended(self, record: EpochRecord) -> History:
        """Return the records of this one, and ``record``, from the same file if it ends here."""
        if self._length != len(self._spool):
            return History((*self, record))
        self._spool.append(_encoder.encode(record))
        return self.first(self._length + 1)

    def first(self, length: int) -> History:
        """Return the first ``length`` records, from the same file."""
        found = History()
        found._spool, found._length = self._spool, length
        return found

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> EpochRecord: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[EpochRecord]: ...

    def __getitem__(self, place: int | slice) -> EpochRecord | Sequence[EpochRecord]:
        if isinstance(place, slice):
            return tuple(self[number] for number in range(self._length)[place])
        return self._record(range(self._length)[place])

    def __iter__(self) -> Iterator[EpochRecord]:
        return map(self._record, range(self._length))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(
            mine == theirs for mine, theirs in zip(self, other, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"History of {self._length} epochs"

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_packed, ([self._spool.read(number) for number in range(self._length)],)

    def _record(self, number: int) -> EpochRecord:
        return _decoder.decode(self._spool.read(number))


def _from_packed(records: list[bytes]) -> History:
    """Return what another process has sent of a history."""
    found = History()
    for packed in records:
        found._spool.append(packed)
    found._length = len(found._spool)
    return found
