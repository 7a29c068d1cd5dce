"""Names that a pickle of plain data may contain: NumPy arrays and types, SciPy CSR matrices.

A name stands for a function of this module, which checks its arguments; no named function runs.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnscale.core import Array
from gnnscale.data.validation import quoted

_NUMBER = re.compile(r"b1|[iu][1248]|f[248]")
_MAX_AXES = 4


class PickleError(ValueError):
    """Error of a pickle that is damaged, or has data that are not plain."""


@dataclass(frozen=True)
class Global:
    """Dotted name of a function or class in a pickle, never imported."""

    name: str


class Budget:
    """Bytes that the arrays of a pickle may still take, since one stored string could fill many."""

    def __init__(self, num_bytes: int) -> None:
        self._num_bytes = num_bytes

    def spend(self, num_bytes: int) -> None:
        """Subtract ``num_bytes`` from the budget; PickleError if it is exhausted."""
        self._num_bytes -= num_bytes
        if self._num_bytes < 0:
            raise PickleError("its arrays have more bytes than the file")


class DtypeRecord:
    """NumPy number type in a pickle; ``dtype`` is None until ``build`` reads the byte order."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.dtype: np.dtype[Any] | None = None

    def build(self, state: object, budget: Budget) -> None:
        """Set ``dtype`` by the byte order in ``state``; PickleError: a dtype of fields or flags."""
        if not (isinstance(state, tuple) and len(state) in (8, 9)):
            raise PickleError("a dtype with a state of another form")
        version, order, *details = state
        if type(version) is not int or version not in (3, 4) or _text(order) not in ("<", ">", "|"):
            raise PickleError(f"a dtype of byte order {quoted(order)}, version {quoted(version)}")
        unused, numbers = details[:3] + details[6:], details[3:6]
        # A float, or True, would be equal to an integer.
        are_plain = all(type(number) is int for number in numbers) and numbers == [-1, -1, 0]
        if not are_plain or any(value is not None for value in unused):
            raise PickleError("a dtype with fields or flags, read are plain numbers")
        self.dtype = np.dtype(f"{_text(order)}{self.code}")


class ArrayRecord:
    """NumPy array in a pickle; ``array`` is None until ``build`` or ``fill`` reads its bytes."""

    def __init__(self) -> None:
        self.array: Array | None = None

    def build(self, state: object, budget: Budget) -> None:
        """Set ``array`` from ``state``: version, shape, type, whether Fortran order, and bytes.

        PickleError: the state has another form.
        """
        if not (isinstance(state, tuple) and len(state) == 5):
            raise PickleError("an array with a state of another form")
        version, shape, dtype, fortran, content = state
        if type(version) is not int or version != 1 or not isinstance(fortran, int):
            raise PickleError("an array with a state of another version")
        self.fill(content, dtype, shape, "F" if fortran else "C", budget)

    def fill(
        self, content: object, dtype: object, shape: object, order: object, budget: Budget
    ) -> None:
        """Set ``array`` from bytes ``content``, which are spent; PickleError: they do not fit."""
        if self.array is not None:
            raise PickleError("an array is filled twice")
        if not isinstance(dtype, DtypeRecord) or dtype.dtype is None:
            raise PickleError("an array without a type of numbers")
        if not (
            isinstance(shape, tuple)
            and len(shape) <= _MAX_AXES
            and all(type(size) is int and 0 <= size < 2**47 for size in shape)
        ):
            raise PickleError("an array whose shape is no tuple of up to 4 sizes")
        if isinstance(content, str):  # Python 2's strings are bytes
            content = _latin1(content, budget)
        if not isinstance(content, bytes | bytearray):
            raise PickleError(f"an array of {dtype.dtype} without its bytes")
        if len(content) != math.prod(shape) * dtype.dtype.itemsize:
            raise PickleError(f"an array of {dtype.dtype}{list(shape)} with {len(content)} bytes")
        budget.spend(len(content))
        flat = np.frombuffer(content, dtype.dtype).astype(dtype.dtype.newbyteorder("="))
        self.array = flat.reshape(shape, order="F" if order == "F" else "C")


class SparseRecord:
    """CSR matrix in a pickle: its attributes by name in ``fields``, unchecked."""

    def __init__(self) -> None:
        self.fields: dict[Any, Any] = {}

    def build(self, state: object, budget: Budget) -> None:
        """Set the matrix's ``fields`` to ``state``; PickleError: ``state`` is no dictionary."""
        if not isinstance(state, dict):
            raise PickleError("a sparse matrix with a state of another form")
        self.fields = state


def _make_dtype(budget: Budget, *args: object) -> DtypeRecord:
    code = _text(args[0]) if args else ""
    if (
        len(args) > 3
        or not _NUMBER.fullmatch(code)
        or not all(isinstance(a, int) for a in args[1:])
    ):
        raise PickleError(f"a dtype of {quoted(code)}, read are plain numbers")
    return DtypeRecord(code)


def _reconstruct(budget: Budget, *args: object) -> ArrayRecord:
    """Return an empty array record for a call of NumPy's ``_reconstruct``; ``build`` fills it."""
    if len(args) != 3 or args[0] != Global("numpy.ndarray"):
        raise PickleError("an array of another class")
    return ArrayRecord()


def _from_buffer(budget: Budget, *args: object) -> ArrayRecord:
    """Return a filled array record for NumPy's call ``_frombuffer(bytes, type, shape, order)``."""
    if len(args) != 4 or _text(args[3]) not in ("C", "F"):
        raise PickleError("an array with arguments of another form")
    record = ArrayRecord()
    record.fill(args[0], args[1], args[2], _text(args[3]), budget)
    return record


def _new_sparse(budget: Budget, *args: object) -> SparseRecord:
    if args:
        raise PickleError("a sparse matrix with arguments")
    return SparseRecord()


def _reconstructor(budget: Budget, *args: object) -> SparseRecord:
    """Return an empty CSR record for a call of ``copyreg._reconstructor``, of protocols 0 and 1."""
    if args not in [(Global(name), Global("builtins.object"), None) for name in _SPARSE]:
        raise PickleError("an object of another class than csr_matrix")
    return SparseRecord()


def _default_dict(budget: Budget, *args: object) -> dict[Any, Any]:
    if args not in ((), (Global("builtins.list"),)):
        raise PickleError("a defaultdict of other things than lists")
    return {}


def _encode(budget: Budget, *args: object) -> bytes:
    """Return the bytes of ``args``, the latin1 text by which protocols 0 to 2 store bytes."""
    if len(args) != 2 or not isinstance(args[0], str) or args[1] != "latin1":
        raise PickleError("bytes in another encoding than latin1")
    return _latin1(args[0], budget)


def _empty_bytes(budget: Budget, *args: object) -> bytes:
    if args:
        raise PickleError("bytes with arguments")
    return b""


def _latin1(text: str, budget: Budget) -> bytes:
    budget.spend(len(text))
    try:
        return text.encode("latin1")
    except UnicodeEncodeError:
        raise PickleError("text in place of bytes") from None


def _text(value: object) -> str:
    """Return ``value``, a str or bytes of at most 8 characters, as str; "" for anything else."""
    if isinstance(value, bytes) and len(value) <= 8:
        value = value.decode("latin1")
    return value if isinstance(value, str) and len(value) <= 8 else ""


_SPARSE = ("scipy.sparse.csr.csr_matrix", "scipy.sparse._csr.csr_matrix")
_ARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
_BUFFER = ("numpy.core.numeric", "numpy._core.numeric")

#: Functions of this module for the names that may be called.
CALLS: dict[str, Callable[..., Any]] = {
    "numpy.dtype": _make_dtype,
    **{f"{module}._reconstruct": _reconstruct for module in _ARRAY},
    **{f"{module}._frombuffer": _from_buffer for module in _BUFFER},
    **dict.fromkeys(_SPARSE, _new_sparse),
    "copyreg._reconstructor": _reconstructor,
    "collections.defaultdict": _default_dict,
    "_codecs.encode": _encode,
    "builtins.bytes": _empty_bytes,
}
#: All names that a pickle may mention.
KNOWN = frozenset(CALLS) | {"numpy.ndarray", "builtins.list", "builtins.object"}
