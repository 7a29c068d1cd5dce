import os
import sys
from types import SimpleNamespace

import torch
from torch.utils import deterministic

from gnnscale import ops
from gnnscale.training.determinism import fix_instruction_set, repeatable_operations


def gradient(index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """What many rows add to few: several threads add them up."""
    x = torch.zeros(7, 8, requires_grad=True)
    (x[index] * weights).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    return x.grad


def test_gradients_of_an_indexing_repeat() -> None:
    index, weights = torch.randint(0, 7, (100_000,)), torch.randn(100_000, 8)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with repeatable_operations(True):
            first = gradient(index, weights)
            assert all(torch.equal(gradient(index, weights), first) for _ in range(8))
    finally:
        torch.set_num_threads(threads)


def test_the_mode_ends_with_the_block() -> None:
    fills = deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    for wanted in (True, False):
        with repeatable_operations(wanted):
            assert torch.are_deterministic_algorithms_enabled() is wanted
        assert not torch.are_deterministic_algorithms_enabled()
        assert deterministic.fill_uninitialized_memory is fills  # type: ignore[attr-defined]


def test_torch_s_compiler_is_deterministic_without_its_import(monkeypatch) -> None:
    name, variable = "torch._inductor.config", "TORCHINDUCTOR_DETERMINISTIC"
    for before in (None, "0"):
        monkeypatch.setattr(os, "environ", dict(os.environ))
        monkeypatch.setitem(sys.modules, name, None)  # no import of it succeeds
        if before is not None:
            os.environ[variable] = before
        with repeatable_operations(True):
            assert os.environ[variable] == "1"
        assert os.environ.get(variable) == before
    compiler = SimpleNamespace(deterministic=False)
    with monkeypatch.context() as imported:
        imported.setitem(sys.modules, name, compiler)
        with repeatable_operations(True):
            assert compiler.deterministic
        assert not compiler.deterministic
    with repeatable_operations(True):
        monkeypatch.setitem(sys.modules, name, compiler)
        compiler.deterministic = True  # as the variable says
    assert not compiler.deterministic


def test_torch_says_what_it_said_before_the_block() -> None:
    torch.set_deterministic_debug_mode("warn")
    try:
        with repeatable_operations(True):
            assert torch.get_deterministic_debug_mode() == 2
        assert torch.get_deterministic_debug_mode() == 1
    finally:
        torch.set_deterministic_debug_mode("default")


def test_a_torch_that_computes_already_is_told(monkeypatch, caplog) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    fix_instruction_set()
    if ops.supported_simd_level() == "baseline":
        assert not caplog.messages
    else:
        (line,) = caplog.messages
        assert "torch already computes with AVX512" in line
