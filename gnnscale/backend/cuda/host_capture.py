"""Recordings of what the host does in the place of a GPU: the twin of a CUDA graph.

A recording repeats operations and kernels with the tensors that they had, and nothing of the
program around them. Before each repetition its own tensors are filled with what no computation
gives, so that work which reads what was not written again is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

#: What integers are filled with: no index, and no size.
_NO_NUMBER = -(1 << 6)
#: Operations that make tensors without writing them.
_ONLY_ROOM = frozenset(
    {
        *(torch.ops.aten.empty.memory_format, torch.ops.aten.empty_like.default),
        *(torch.ops.aten.empty_strided.default, torch.ops.aten.new_empty.default),
        *(torch.ops.aten.new_empty_strided.default,),
    }
)

_RECORDING: ContextVar[Recording | None] = ContextVar("recording", default=None)


class CaptureError(RuntimeError):
    """A step does what a CUDA graph cannot repeat."""


def note_launch(launch: Callable[[], None], arguments: tuple[object, ...]) -> None:
    """Add a kernel that was launched to what is being recorded in this thread, if anything is.

    Args:
        arguments: whose memory must live as long as the recording.
    """
    recording = _RECORDING.get()
    if recording is not None:
        recording.add(launch, arguments)


class Recording(TorchDispatchMode):
    """Operations and kernels in the order in which they were done."""

    def __init__(self) -> None:
        """Record nothing yet."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls: list[Callable[[], None]] = []
        self._own: list[torch.Tensor] = []
        self._held: list[object] = []

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record what is done in the ``with`` block, in this thread."""
        token = _RECORDING.set(self)
        try:
            with self:
                yield
        finally:
            _RECORDING.reset(token)

    def add(self, call: Callable[[], None], held: object) -> None:
        """Add what is repeated, and what must live for it."""
        self._calls.append(call)
        self._held.append(held)

    @torch.no_grad()
    def repeat(self) -> None:
        """Do all of it again."""
        for each in self._own:
            _spoil(each)
        for call in self._calls:
            call()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten.lift_fresh.default:
            raise CaptureError("a step brings numbers of the host to the device")
        out = func(*args, **kwargs)
        given = {_memory(each) for each in _tensors((args, kwargs))}
        made = [each for each in _tensors(out) if _memory(each) not in given]
        self._own += made
        self._held.append((args, kwargs, out))
        if func in _ONLY_ROOM:
            return out
        if made:
            self._calls.append(lambda: _copy(func(*args, **kwargs), out, made))
        elif func._schema.is_mutable:
            self._calls.append(lambda: func(*args, **kwargs))
        return out


def _copy(again: Any, out: Any, made: list[torch.Tensor]) -> None:
    """Copy what an operation has given to the memory that it had given before."""
    places = {id(each) for each in made}
    for old, new in zip(_tensors(out), _tensors(again), strict=True):
        if id(old) in places:
            old.copy_(new)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [each for each in tree_leaves(tree) if isinstance(each, torch.Tensor)]


def _memory(tensor: torch.Tensor) -> int:
    """Return what tensors over the same memory share."""
    return int(tensor.untyped_storage()._cdata)


def _spoil(tensor: torch.Tensor) -> None:
    if tensor.dtype.is_floating_point:
        tensor.fill_(float("nan"))
    elif tensor.dtype is not torch.bool:
        tensor.fill_(_NO_NUMBER if tensor.dtype.is_signed else 0)
