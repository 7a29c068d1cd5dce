import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gnnscale.core.process import preserved_defaults, standard_arithmetic


def found() -> tuple[Any, ...]:
    numpy = tuple(np.geterr().values())
    switches = torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
    device = str(torch.get_default_device())
    return (torch.get_default_dtype(), device, torch.is_grad_enabled(), *switches, *numpy)


STANDARD = (torch.float32, "cpu", True, False, False, "warn", "warn", "ignore", "warn")


@pytest.fixture(autouse=True)
def fresh() -> Any:
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_grad_enabled(True)


def test_a_block_computes_as_a_fresh_process_does() -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    with torch.inference_mode(), torch.autocast("cpu"), np.errstate(all="raise"):
        before = found()
        with standard_arithmetic():
            assert found() == STANDARD
            layer = nn.Linear(2, 3)
            out = layer(torch.ones(1, 2))
            out.sum().backward()
            with standard_arithmetic():
                assert found() == STANDARD
        assert found() == before
        assert out.dtype == layer.weight.dtype == torch.float32
        assert layer.weight.device.type == "cpu"
        assert layer.weight.grad is not None


def test_the_last_of_several_threads_restores_the_default_type() -> None:
    torch.set_default_dtype(torch.float64)
    first, second = threading.Event(), threading.Event()

    def compute(mine: threading.Event, other: threading.Event) -> torch.dtype:
        with standard_arithmetic():
            mine.set()
            assert other.wait(10)
        return torch.get_default_dtype()

    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(compute, first, second)
        with standard_arithmetic():
            assert first.wait(10)
            second.set()
            assert one.result() == torch.float32
            assert torch.get_default_dtype() == torch.float32
    assert torch.get_default_dtype() == torch.float64


@pytest.mark.parametrize("device", [None, "meta"])
def test_what_an_import_sets_is_restored(device: str | None) -> None:
    torch.set_default_device(device)
    before = found()
    with suppress(KeyError), preserved_defaults():
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta" if device is None else "cpu")
        torch.set_grad_enabled(False)
        np.seterr(all="raise")
        raise KeyError
    assert found() == before
