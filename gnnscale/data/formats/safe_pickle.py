"""Interpreter of pickles of plain data, which cannot run code.

``pickletools`` parses the file, a few operations move plain objects, and the names of
``safe_pickle_types`` stand for checked records. All else is refused.
"""

import pickletools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gnnscale.core import Array, GraphError, brief
from gnnscale.core.artifact import check_array, files
from gnnscale.data.formats import safe_pickle_types
from gnnscale.data.formats.safe_pickle_types import PickleError
from gnnscale.data.validation import quoted

#: Integer keys of dictionaries, at most: larger integers collide in few hash values.
_MAX_KEY = 2**60


def load_pickle(path: Path) -> Any:
    """Return the plain data in a pickle file; GraphError: damage, or data that are not plain."""
    return parse_pickle(files.read_file(path), source=path)


def parse_pickle(data: bytes, *, source: object) -> Any:
    """Return the plain data in a pickle, of which no code runs; GraphError: damage or other data.

    Plain data are None, numbers, str, bytes, lists, tuples and dictionaries; and records of arrays
    and sparse matrices, for ``array_of`` and ``sparse_fields``. A list may contain itself.
    """
    with warnings.catch_warnings():
        # The text decoder warns about invalid escapes; no pickler writes invalid escapes.
        warnings.filterwarnings("error", "invalid .*escape")
        return _run(data, source)


def _run(data: bytes, source: object) -> Any:
    machine = _StackMachine(len(data))
    operations = pickletools.genops(data)
    position = 0
    while True:
        try:
            opcode, argument, offset = next(operations)
        except Exception as error:  # damaged bytes make the decoders raise anything
            reason = str(error) or type(error).__name__
            raise _refused(source, f"damaged: {reason}", position) from None
        position = offset or 0
        try:
            if opcode.name == "STOP":
                return machine.result()
            action = _ACTIONS.get(opcode.name)
            if action is None:
                raise PickleError(f"refused: operation {opcode.name} is none of plain data")
            action(machine, argument)
        except PickleError as error:
            raise _refused(source, str(error), position) from None


def array_of(value: object, *, axes: int, kinds: str, source: object) -> Array:
    """Return the array in a ``parse_pickle`` record; GraphError: no array, other axes or kind."""
    if not isinstance(value, safe_pickle_types.ArrayRecord) or value.array is None:
        raise GraphError(f"{source}: holds {quoted(value)}, not an array")
    check_array(value.array, axes=axes, kinds=kinds, source=source)
    return value.array


def sparse_fields(value: object, *, source: object) -> dict[Any, Any]:
    """Return the attributes by name, unchecked, of a CSR matrix that ``parse_pickle`` returned.

    GraphError: ``value`` is no CSR matrix.
    """
    if not isinstance(value, safe_pickle_types.SparseRecord):
        raise GraphError(f"{source}: holds {quoted(value)}, not a sparse matrix")
    return value.fields


def _refused(source: object, reason: str, position: int) -> GraphError:
    return GraphError(f"{source}: cannot be read as plain data, byte {position}: {reason}")


class _StackMachine:
    """State of a pickle interpreter: stack with marks, objects by number, budget of bytes."""

    def __init__(self, num_bytes: int) -> None:
        self.stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        # An entry of the memo takes at least two bytes of the file.
        self._max_memo = num_bytes // 2
        # The bytes of an array count when decoded and again when converted.
        self._budget = safe_pickle_types.Budget(2 * num_bytes)

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if len(self.stack) <= (self._marks[-1] if self._marks else 0):
            raise PickleError("it takes from an empty stack")
        return self.stack.pop()

    def result(self) -> Any:
        value = self.pop()
        if self.stack:
            raise PickleError(f"it leaves {len(self.stack) + 1} objects, a pickle holds one")
        return value

    def top(self, kind: type[Any] | tuple[type[Any], ...]) -> Any:
        value = self.pop()
        self.push(value)
        if not isinstance(value, kind):
            raise PickleError(f"it changes {quoted(value)}")
        return value

    def mark(self) -> None:
        self._marks.append(len(self.stack))

    def pop_mark(self) -> list[Any]:
        if not self._marks:
            raise PickleError("it goes back to a mark that is not there")
        start = self._marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def pop_many(self, count: int) -> tuple[Any, ...]:
        return tuple(self.pop() for _ in range(count))[::-1]

    def remember(self, index: int | None) -> None:
        index = len(self._memo) if index is None else index
        if len(self._memo) > self._max_memo:
            raise PickleError("it remembers more than it holds")
        self._memo[index] = self.top(object)

    def recall(self, index: int) -> None:
        if index not in self._memo:
            raise PickleError(f"it recalls {quoted(index)}, which was not remembered")
        self.push(self._memo[index])

    def extend(self, values: list[Any]) -> None:
        self.top(list).extend(values)

    def push_items(self, values: list[Any]) -> None:
        self.push({})
        self.set_items(values)

    def set_items(self, values: list[Any]) -> None:
        target = self.top(dict)
        if len(values) % 2:
            raise PickleError("a key without a value")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not (type(key) in (str, bytes) or (type(key) is int and abs(key) < _MAX_KEY)):
                raise PickleError(f"refused: {quoted(key)} is the key of a dictionary")
            target[key] = value

    def name(self, name: str) -> None:
        """Push a dotted name as a ``Global``; PickleError unless plain data may contain it."""
        # Modules that Python 3 renamed.
        for old, new in (("__builtin__.", "builtins."), ("copy_reg.", "copyreg.")):
            if name.startswith(old):
                name = new + name.removeprefix(old)
        if name not in safe_pickle_types.KNOWN:
            raise PickleError(f"refused: it names {brief(name)}")
        self.push(safe_pickle_types.Global(name))

    def stack_name(self) -> None:
        module, name = self.pop_many(2)
        if type(module) is not str or type(name) is not str:
            raise PickleError("a name that is no text")
        self.name(f"{module}.{name}")

    def call(self) -> None:
        function, arguments = self.pop_many(2)
        if (
            not isinstance(function, safe_pickle_types.Global)
            or function.name not in safe_pickle_types.CALLS
        ):
            raise PickleError(f"refused: it calls {quoted(function)}")
        if not isinstance(arguments, tuple):
            raise PickleError(f"refused: arguments are {quoted(arguments)}")
        self.push(safe_pickle_types.CALLS[function.name](self._budget, *arguments))

    def build(self) -> None:
        state = self.pop()
        target = self.pop()
        if not hasattr(type(target), "build"):
            raise PickleError(f"refused: it gives a state to {quoted(target)}")
        target.build(state, self._budget)
        self.push(target)


def _make(kind: Callable[[Any], Any]) -> Callable[[_StackMachine, Any], None]:
    """Return an action that replaces the objects above the last mark by ``kind(objects)``."""
    return lambda machine, argument: machine.push(kind(machine.pop_mark()))


def _constant(make: Callable[[], Any]) -> Callable[[_StackMachine, Any], None]:
    return lambda machine, argument: machine.push(make())


def _argument(*names: str) -> dict[str, Callable[[_StackMachine, Any], None]]:
    return dict.fromkeys(names, _StackMachine.push)


_ACTIONS: dict[str, Callable[[_StackMachine, Any], object]] = {
    **dict.fromkeys(("PROTO", "FRAME"), lambda machine, argument: None),
    **_argument("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"),
    **_argument("FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING"),
    **_argument("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    **_argument("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    "NONE": _constant(lambda: None),
    "NEWTRUE": _constant(lambda: True),
    "NEWFALSE": _constant(lambda: False),
    "EMPTY_LIST": _constant(list),
    "EMPTY_TUPLE": _constant(tuple),
    "EMPTY_DICT": _constant(dict),
    "LIST": _make(list),
    "TUPLE": _make(tuple),
    "DICT": lambda machine, argument: machine.push_items(machine.pop_mark()),
    "TUPLE1": lambda machine, argument: machine.push(machine.pop_many(1)),
    "TUPLE2": lambda machine, argument: machine.push(machine.pop_many(2)),
    "TUPLE3": lambda machine, argument: machine.push(machine.pop_many(3)),
    "APPEND": lambda machine, argument: machine.extend([machine.pop()]),
    "APPENDS": lambda machine, argument: machine.extend(machine.pop_mark()),
    "SETITEM": lambda machine, argument: machine.set_items(list(machine.pop_many(2))),
    "SETITEMS": lambda machine, argument: machine.set_items(machine.pop_mark()),
    "MARK": lambda machine, argument: machine.mark(),
    "POP": lambda machine, argument: machine.pop(),
    "POP_MARK": lambda machine, argument: machine.pop_mark(),
    "DUP": lambda machine, argument: machine.stack.append(machine.top(object)),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _StackMachine.remember),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _StackMachine.recall),
    "GLOBAL": lambda machine, argument: machine.name(argument.replace(" ", ".", 1)),
    "STACK_GLOBAL": lambda machine, argument: machine.stack_name(),
    **dict.fromkeys(("REDUCE", "NEWOBJ"), lambda machine, argument: machine.call()),
    "BUILD": lambda machine, argument: machine.build(),
}
