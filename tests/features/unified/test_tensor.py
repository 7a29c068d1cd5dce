"""Unified tensors: tables 1 and 2 of PyTorch-Direct, with the host in the GPU's place."""

from typing import Any

import pytest
import torch
from host_side import HostSide
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line

from gnnscale.backend.cuda.host_kernels import HostKernels
from gnnscale.backend.cuda.row_gather import RowGather
from gnnscale.features.unified import (
    UnifiedDevice,
    UnifiedTensor,
    is_unified,
    mem_advise,
    place,
    set_propagated_to_cuda,
    unified_device,
)


@pytest.fixture
def gpu() -> HostSide:
    return HostSide()


def numbers(gpu: HostSide, *, preferred: bool = True) -> UnifiedTensor:
    rows = torch.arange(12.0).view(4, 3)
    return UnifiedTensor.copy_of(rows, gpu, propagated_to_cuda=preferred)


def kind_of(gpu: HostSide, tensor: torch.Tensor) -> str:
    if isinstance(tensor, UnifiedTensor):
        return f"unified {tensor.propagated_to_cuda}"
    return "gpu" if gpu.owns(tensor) else "cpu"


def test_a_tensor_is_copied_to_the_unified_device(gpu: HostSide) -> None:
    rows = torch.rand(3, 2)
    with unified_device(gpu):
        copied = rows.to("unified")
    assert is_unified(copied)
    assert not is_unified(rows)
    assert copied.is_unified  # type: ignore[attr-defined]
    copied.add_(1)
    assert torch.equal(copied.cpu(), rows + 1)


def test_torchs_own_functions_take_the_unified_device(gpu: HostSide) -> None:
    with unified_device(gpu):
        ones = torch.ones(128, device="unified")
        more = torch.full((2, 3), 7, dtype=torch.int64, device="unified")
        plain = torch.ones(2, device="cpu")
    assert is_unified(ones)
    assert ones.tolist() == [1.0] * 128
    assert more.tolist() == [[7] * 3] * 2
    assert not is_unified(plain)


def test_gpu_tensors_index_unified_ones(gpu: HostSide) -> None:
    for dtype in (torch.int32, torch.int64):
        index = gpu.copy(torch.tensor([2, 0, -1], dtype=dtype))
        found = numbers(gpu)[index]
        assert kind_of(gpu, found) == "gpu"
        assert found.tolist() == [[6, 7, 8], [0, 1, 2], [9, 10, 11]]


def test_the_preference_is_set_at_creation_and_switched(gpu: HostSide) -> None:
    with unified_device(gpu):
        made = torch.ones(3, device=UnifiedDevice(propagated_to_cuda=False))
    assert isinstance(made, UnifiedTensor)
    assert not made.propagated_to_cuda
    place_before = made.data_ptr()
    set_propagated_to_cuda(made, True)
    assert made.propagated_to_cuda
    assert made.data_ptr() == place_before


def test_the_driver_is_advised_before_anything_is_written(gpu: HostSide) -> None:
    advice = ("SetPreferredLocation", "cpu")
    with unified_device(gpu):
        made = torch.rand(3).to(UnifiedDevice(advise=advice))
    assert gpu.advised == [("SetPreferredLocation", torch.device("cpu"))]
    assert mem_advise(made, "SetReadMostly", "cpu") == 0
    assert numbers(gpu).mem_advise("SetReadMostly", "cpu") != 0  # memory that is not managed


def test_what_is_refused(gpu: HostSide) -> None:
    with one_line("advice=Read: allowed are SetReadMostly"):
        numbers(gpu).mem_advise("Read", "cpu")
    for call, *arguments in ((set_propagated_to_cuda, True), (mem_advise, "SetReadMostly", "cpu")):
        with pytest.raises(RuntimeError, match="expected a unified tensor"):
            call(torch.ones(2), *arguments)
    with unified_device(HostSide(free_bytes=100)), one_line("100 B", "free"):
        torch.zeros(26).to(UnifiedDevice(advise=("SetReadMostly", "cpu")))
    with pytest.raises(RuntimeError, match="no gradient"):
        numbers(gpu).requires_grad_()


@settings(max_examples=20)
@given(
    preferred=st.lists(st.booleans(), min_size=1, max_size=3),
    others=st.lists(st.sampled_from(["cpu", "gpu", "scalar"]), max_size=3),
)
def test_an_operation_is_placed_by_the_table_and_gives_torchs_numbers(preferred, others) -> None:
    gpu = HostSide()
    rows = torch.arange(6.0).view(2, 3)
    operands: list[Any] = [
        UnifiedTensor.copy_of(rows + i, gpu, propagated_to_cuda=each)
        for i, each in enumerate(preferred)
    ]
    made = {"cpu": rows, "gpu": gpu.copy(rows), "scalar": torch.tensor(2.0)}
    before = gpu.num_computed
    found = torch.addcmul(operands[0], operands[-1], operands[0])
    placed = place(has_cpu=False, has_gpu=False, prefers=[preferred[0], preferred[-1]])
    assert (gpu.num_computed > before) == placed.on_gpu
    assert torch.equal(torch.Tensor(found.tolist()), rows + (rows + len(preferred) - 1) * rows)
    for name in others:
        result = operands[0] + made[name]
        expected = place(has_cpu=name == "cpu", has_gpu=name == "gpu", prefers=[preferred[0]])
        kind = "gpu" if expected.output.value == "gpu" else f"unified {expected.propagated_to_cuda}"
        assert kind_of(gpu, result) == kind
        assert torch.equal(torch.Tensor(result.tolist()), rows + made[name])


def test_a_view_is_of_the_same_memory_and_keeps_the_preference(gpu: HostSide) -> None:
    whole = numbers(gpu, preferred=False)
    for view in (whole[1:3], whole.view(3, 4), whole.t(), whole[:, 1], whole[2]):
        assert isinstance(view, UnifiedTensor)
        assert not view.propagated_to_cuda
        assert whole.data_ptr() <= view.data_ptr() < whole.data_ptr() + whole.nbytes
    whole[1:3].zero_()
    assert whole.tolist() == [[0, 1, 2], [0, 0, 0], [0, 0, 0], [9, 10, 11]]
    unaligned = UnifiedTensor.copy_of(torch.arange(9, dtype=torch.uint8).view(3, 3), gpu)
    assert (unaligned[1:] + 1).tolist() == [[4, 5, 6], [7, 8, 9]]


@pytest.mark.parametrize("preferred", [True, False])
def test_in_place_writes_change_the_same_memory(gpu: HostSide, preferred: bool) -> None:
    whole = numbers(gpu, preferred=preferred)
    view = whole[1:]
    assert whole.mul_(2) is whole
    view[0] = torch.tensor([5.0, 6.0, 7.0])
    assert whole.tolist()[:2] == [[0, 2, 4], [5, 6, 7]]


def test_unified_tensors_go_to_other_devices_and_types(gpu: HostSide) -> None:
    rows = numbers(gpu)
    assert kind_of(gpu, rows.cpu()) == "cpu"
    assert rows.cpu().data_ptr() != rows.data_ptr()
    assert kind_of(gpu, rows.to("cuda")) == "gpu"
    assert rows.to(torch.float64).dtype == torch.float64
    assert rows.numpy().sum() == 66
    assert rows.sum().item() == 66
    assert len(rows) == 4


def gathered(rows: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    if not len(ids):
        return rows[ids]
    gather = RowGather(rows, HostKernels(num_threads=1), max_ids=len(ids))
    return gather.gather(ids.contiguous(), torch.tensor([len(ids)])).out


@pytest.mark.long
@settings(max_examples=20)
@given(width=st.integers(1, 40), ids=st.lists(st.integers(-9, 8), max_size=12))
def test_rows_are_gathered_by_kernels_if_there_are_some(width: int, ids: list[int]) -> None:
    gpu = HostSide(gather=gathered)
    table = torch.rand(9, width)
    index = torch.tensor(ids, dtype=torch.int64)
    found = UnifiedTensor.copy_of(table, gpu)[gpu.copy(index)]
    assert torch.equal(torch.Tensor(found.tolist()).view(len(ids), width), table[index])
