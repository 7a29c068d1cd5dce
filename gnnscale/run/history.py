"""Records of epochs in an unnamed temporary file, so that memory does not grow with them."""

import tempfile
import threading
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import msgspec

from gnnscale.run.records import EpochRecord

#: Bytes of records in memory: a short run has no file.
_MAX_MEMORY = 1 << 16

_encoder = msgspec.msgpack.Encoder(enc_hook=lambda value: value.item())  # scalars of NumPy
_decoder = msgspec.msgpack.Decoder(EpochRecord)


class _Spool:
    """Append-only file of packed records; any thread may read while one thread appends."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_MAX_MEMORY)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._ends = array("q", [0])  # offsets in the file: record n lies from entry n to n + 1
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._ends) - 1

    def append(self, packed: bytes) -> None:
        with self._lock:
            try:
                self._file.seek(self._ends[-1])
                self._file.write(packed)
            except OSError as error:
                raise OSError(error.errno, error.strerror, tempfile.gettempdir()) from None
            self._ends.append(self._ends[-1] + len(packed))

    def read(self, number: int) -> bytes:
        with self._lock:
            begin, end = self._ends[number], self._ends[number + 1]
            self._file.seek(begin)
            return self._file.read(end - begin)


class History(Sequence[EpochRecord]):
    """Immutable sequence of epoch records on disk, which begins with ``records``."""

    def __init__(self, records: Iterable[EpochRecord] = ()) -> None:
        self._spool = _Spool()
        for record in records:
            self._spool.append(_encoder.encode(record))
        self._length = len(self._spool)

    def appended(self, record: EpochRecord) -> "History":
        """Return a history with ``record`` added, in a new file if this one has newer records."""
        if self._length != len(self._spool):
            return History((*self, record))
        self._spool.append(_encoder.encode(record))
        return self.first(self._length + 1)

    def first(self, length: int) -> "History":
        """Return a history of the first ``length`` records in the same file."""
        history = History.__new__(History)  # without a file of its own
        history._spool, history._length = self._spool, length
        return history

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> EpochRecord: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[EpochRecord]: ...

    def __getitem__(self, index: int | slice) -> EpochRecord | Sequence[EpochRecord]:
        if isinstance(index, slice):
            return tuple(self[number] for number in range(self._length)[index])
        return self._record(range(self._length)[index])

    def __iter__(self) -> Iterator[EpochRecord]:
        return map(self._record, range(self._length))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(
            record == other_record for record, other_record in zip(self, other, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"History of {self._length} epochs"

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_packed, ([self._spool.read(number) for number in range(self._length)],)

    def _record(self, number: int) -> EpochRecord:
        return _decoder.decode(self._spool.read(number))


def _from_packed(records: list[bytes]) -> History:
    """Return a history of encoded ``records`` from another process."""
    history = History()
    for packed in records:
        history._spool.append(packed)
    history._length = len(history._spool)
    return history
