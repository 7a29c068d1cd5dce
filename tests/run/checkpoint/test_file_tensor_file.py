import math
import random
from dataclasses import dataclass
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from one_line import one_line

from gnnscale.run.checkpoint.file import TensorFileError, pack, unpack


@dataclass
class Pair:
    left: Any
    right: Any


TEXT = st.text(max_size=3)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


@given(PLAIN)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    found = unpack(pack(value))
    assert found == value
    assert repr(found) == repr(value)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3).T,
        torch.arange(20)[::3],
        torch.tensor(2.5),
        torch.tensor([math.nan, math.inf, -math.inf, -0.0]),
        torch.empty(0, 3),
        torch.tensor([True, False]),
        torch.arange(4, dtype=torch.bfloat16),
        torch.arange(4, dtype=torch.int64) << 40,
        torch.get_rng_state(),
        torch.nn.Parameter(torch.ones(2)),
    ],
    ids=lambda tensor: f"{tensor.dtype}-{list(tensor.shape)}",
)
def test_tensors_come_back_bit_for_bit(tensor: torch.Tensor) -> None:
    def bits(of: torch.Tensor) -> torch.Tensor:
        return of.detach().contiguous().reshape(-1).view(torch.uint8)

    found = unpack(pack({"a": Pair(tensor, [{"b": tensor}])}))
    first, second = found["a"]["left"], found["a"]["right"][0]["b"]
    for each in (first, second):
        assert (each.dtype, each.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(bits(each), bits(tensor))
    assert tensor.numel() == 0 or first.data_ptr() != second.data_ptr()
    first += first  # writable


def test_what_is_written_of_parts_and_of_other_things() -> None:
    whole = torch.zeros(1_000_000)
    assert len(pack({"a": whole[:2], "b": whole[1:3]})) < 1000
    for value in (object(), {"a": {1, 2}}, {(1, 2): 3}, b"x"):
        with pytest.raises(TypeError):
            pack(value)


def test_a_name_of_no_tensor_is_text() -> None:
    values = {"a": "\0007", "b": ["\0000"], "c": torch.ones(1)}
    assert unpack(pack(values)) == values


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        safetensors.torch.save({"a": torch.ones(2)}),
        *(
            safetensors.torch.save({"values": values})
            for values in (
                torch.ones(2),
                torch.zeros(2, 2, dtype=torch.uint8),
                torch.full((9,), 255, dtype=torch.uint8),
                torch.tensor(list(b"[" * 100_000), dtype=torch.uint8),
                torch.tensor(list(b"9" * 9000), dtype=torch.uint8),
            )
        ),
    ],
)
def test_bytes_of_something_else(content: bytes) -> None:
    with one_line(error=TensorFileError):
        unpack(content)


def test_changed_bytes_are_read_or_refused() -> None:
    whole = pack({"a": torch.arange(8.0), "b": [1, 2.5, "x"], "c": torch.ones(2).long()})
    draw = random.Random(0)
    read = refused = 0
    for _ in range(3000):
        content = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            content[draw.randrange(len(content))] = draw.randrange(256)
        cut = draw.choice([len(content), draw.randrange(len(content))])
        # Any other exception fails the test.
        try:
            unpack(bytes(content[:cut]))
            read += 1
        except TensorFileError:
            refused += 1
    assert read > 10
    assert refused > 1000
