"""Process state of torch and NumPy on which no result may depend."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from gnnscale.core.process import SharedSetting


def _set_default_type(dtype: Any) -> None:
    import torch

    if torch.get_default_dtype() != dtype:
        torch.set_default_dtype(dtype)


def _begin_float32() -> Callable[[], None]:
    """Make float32 torch's process-wide default type; return the function that restores it."""
    import torch

    dtype = torch.get_default_dtype()
    _set_default_type(torch.float32)
    return lambda: _set_default_type(dtype)


_FLOAT32 = SharedSetting(_begin_float32)
#: Device types of models; each has its own switch of automatic mixed precision.
_AUTOCAST_DEVICES = ("cpu", "cuda")
#: NumPy's handling of floating-point errors in a fresh process.
_NUMPY_ERRORS: Any = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}


@contextmanager
def standard_numpy_errors() -> Iterator[None]:
    """Let NumPy handle floating-point errors in the ``with`` block as in a fresh process."""
    import numpy as np

    with np.errstate(**_NUMPY_ERRORS):
        yield


@contextmanager
def standard_arithmetic() -> Iterator[None]:
    """Compute in the ``with`` block, or in a decorated function, as in a fresh process.

    In the block torch's default type is float32 and its default device the CPU; gradients are
    recorded, inference mode and automatic mixed precision are off, and NumPy warns of
    floating-point errors. The state is per thread, except the default type.
    """
    torch: Any = sys.modules.get("torch")
    with ExitStack() as block:
        block.enter_context(standard_numpy_errors())
        if torch is None:  # not imported, so without state
            yield
            return
        block.enter_context(_FLOAT32.held())
        if torch.is_inference_mode_enabled():
            block.enter_context(torch.inference_mode(False))
        if not torch.is_grad_enabled():
            block.enter_context(torch.enable_grad())
        for device in _AUTOCAST_DEVICES:
            if torch.is_autocast_enabled(device):
                block.enter_context(torch.autocast(device, enabled=False))
        if torch.get_default_device().type != "cpu":
            block.enter_context(torch.device("cpu"))
        yield


@contextmanager
def preserved_defaults() -> Iterator[None]:
    """Restore the defaults of torch and NumPy after the block, which may import foreign modules."""
    import numpy as np

    torch: Any = sys.modules.get("torch")
    dtype = "float32" if torch is None else torch.get_default_dtype()
    device = "cpu" if torch is None else str(torch.get_default_device())
    records = torch is None or torch.is_grad_enabled()
    errors = np.geterr()
    try:
        yield
    finally:
        np.seterr(**errors)
        if (torch := sys.modules.get("torch")) is not None:
            _set_default_type(torch.float32 if dtype == "float32" else dtype)
            torch.set_grad_enabled(records)
            if str(torch.get_default_device()) != device:
                torch.set_default_device(None if device == "cpu" else device)
