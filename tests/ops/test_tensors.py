import platform
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.graph.dtypes import as_float32, quantized

STORED = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)
COMPUTED = (torch.float32, torch.bfloat16)


def block(draw: st.DrawFn) -> tuple[NDArray[np.int64], NDArray[np.int32], int]:
    num_dst = draw(st.integers(0, 12))
    num_src = num_dst + draw(st.integers(0 if num_dst else 1, 12))
    source = st.integers(0, num_src - 1)
    lists = draw(st.lists(st.lists(source, max_size=9), min_size=num_dst, max_size=num_dst))
    indptr = np.cumsum([0, *map(len, lists)])
    return indptr, np.array([u for each in lists for u in each], np.int32), num_src


@st.composite
def aggregations(draw: st.DrawFn) -> dict[str, Any]:
    indptr, indices, num_src = block(draw)
    width = draw(st.integers(1, 40))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    num_rows = num_src + 3

    def rows() -> torch.Tensor:
        values = torch.from_numpy(generator.standard_normal((num_rows, width + 2), np.float32))
        dtype = draw(st.sampled_from(STORED))
        stored = (values.abs() * 60).to(dtype) if dtype == torch.uint8 else values.to(dtype)
        return stored[:, draw(st.integers(0, 2)) :][:, :width]

    def floats(size: int) -> Any:
        given = draw(st.booleans())
        return generator.standard_normal(size).astype(np.float32) if given else None

    def ids(size: int) -> Any:
        dtype = draw(st.sampled_from([None, np.int32, np.int64]))
        return None if dtype is None else generator.integers(0, num_rows, size, dtype=dtype)

    num_dst = len(indptr) - 1
    num_self = draw(st.integers(0, num_dst))
    out = torch.full((num_dst, width + 1), 7.0, dtype=draw(st.sampled_from(COMPUTED)))
    return {
        **{"x": rows(), "indptr": indptr, "indices": indices, "ids": ids(num_src)},
        **{"weights": floats(len(indices)), "dst_scale": floats(num_dst)},
        **{"self_rows": rows() if num_self else None, "self_ids": ids(num_self)},
        **{"self_scale": floats(num_self), "num_self": num_self},
        "gate": out[:, :width].clone().normal_() if draw(st.booleans()) else None,
        "out": out,
        "num_threads": draw(st.sampled_from([1, 2, 4])),
    }


def slow_aggregate(task: dict[str, Any]) -> NDArray[np.float64]:
    x = task["x"].to(torch.float64).numpy()
    out = np.zeros((len(task["indptr"]) - 1, x.shape[1]))
    for dst in range(len(out)):
        for edge in range(task["indptr"][dst], task["indptr"][dst + 1]):
            src = task["indices"][edge]
            row = x[src if task["ids"] is None else task["ids"][src]]
            out[dst] += row if task["weights"] is None else row * task["weights"][edge]
        if task["dst_scale"] is not None:
            out[dst] *= task["dst_scale"][dst]
        if dst < task["num_self"]:
            own = task["self_rows"].to(torch.float64).numpy()
            row = own[dst if task["self_ids"] is None else task["self_ids"][dst]]
            out[dst] += row if task["self_scale"] is None else row * task["self_scale"][dst]
    if task["gate"] is not None:
        out[task["gate"].float().numpy() <= 0] = 0
    return out


@pytest.mark.long
@settings(max_examples=60)
@given(aggregations())
def test_aggregate_is_the_sum_it_promises(task: dict[str, Any]) -> None:
    width, wide = task["x"].shape[1], task["out"]
    task = task | {"out": wide[:, :width]}
    expected = torch.from_numpy(slow_aggregate(task))
    out = ops.aggregate(**task)
    assert out is task["out"]
    assert (wide[:, width:] == 7).all()
    precise = wide.dtype == torch.float32
    close = {"rtol": 1e-4, "atol": 1e-3} if precise else {"rtol": 1e-2, "atol": 2e-2}
    torch.testing.assert_close(out.double(), expected, **close)


@given(
    dtype=st.sampled_from(["int8", "int4"]),
    width=st.integers(1, 70),
    computed=st.sampled_from(COMPUTED),
    num_threads=st.sampled_from([1, 2]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=40)
def test_rows_with_a_scale_are_read_as_numpy_decodes_them(
    dtype, width, computed, num_threads, seed
) -> None:
    generator = np.random.default_rng(seed)
    stored = quantized(generator.standard_normal((9, width)).astype(np.float32), dtype)
    # Rows of a wider matrix, which begin at any byte.
    wide = np.full((9, stored.shape[1] + 3), 7, np.uint8)
    wide[:, 2:-1] = stored
    rows, plain = (wide[:, 2:-1], dtype), torch.from_numpy(as_float32(stored, dtype, width))
    ids = generator.integers(0, 9, 20, dtype=np.int32)
    out = torch.full((20, width + 1), 7.0, dtype=computed)
    ops.gather(rows, ids, out=out[:, 1:], num_threads=num_threads)
    assert torch.equal(out[:, 1:], plain[torch.from_numpy(ids).long()].to(computed))
    assert (out[:, 0] == 7).all()
    indptr = np.sort([0, *generator.integers(0, 21, 4), 20])
    task = {"weights": generator.standard_normal(20).astype(np.float32), "num_self": 3}
    task |= {"indptr": indptr, "indices": np.arange(20, dtype=np.int32), "ids": ids}
    results = [torch.empty((5, width), dtype=computed) for _ in range(2)]
    for x, out in zip((rows, plain), results, strict=True):
        ops.aggregate(x, **task, self_rows=x, out=out, num_threads=num_threads)
    assert torch.equal(*results)


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_rows_with_a_scale_are_copied_and_cached(dtype: str) -> None:
    values = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
    stored = quantized(values, dtype)
    cache = np.zeros((2, stored.shape[1]), np.uint8)
    host, kept = (stored, dtype), (cache, dtype)
    ops.copy_rows(host, np.array([4, 1]), kept, np.array([0, 1]), num_threads=1)
    assert np.array_equal(cache, stored[[4, 1]])
    slots = np.int32([-1, 1, -1, -1, 0, -1])
    out = torch.empty(3, 5)
    ops.gather_cached(host, [kept], slots, np.array([1, 2, 4]), out=out, num_threads=1)
    assert np.array_equal(out.numpy(), as_float32(stored, dtype, 5)[[1, 2, 4]])


def test_rows_with_a_scale_that_do_not_fit() -> None:
    rows, ids = np.zeros((3, 7), np.uint8), np.array([2])
    for dtype, allowed in (("int8", (3,)), ("int4", (5, 6))):
        for width in range(2, 8):
            out = torch.empty(1, width)
            if width in allowed:
                ops.gather((rows, dtype), ids, out=out, num_threads=1)
                continue
            with pytest.raises(ValueError, match=f"out: {width} columns, allowed .* 7 bytes"):
                ops.gather((rows, dtype), ids, out=out, num_threads=1)
    with pytest.raises(TypeError, match="x: int8"):
        ops.gather_columns((rows, "int8"), ids, num_threads=1)


@pytest.mark.long
@given(
    rows=st.integers(1, 20),
    width=st.integers(1, 70),
    stored=st.sampled_from(STORED),
    computed=st.sampled_from(COMPUTED),
    wide=st.booleans(),
    num_threads=st.sampled_from([1, 2]),
    data=st.data(),
)
@settings(max_examples=40)
def test_gather_is_indexing(rows, width, stored, computed, wide, num_threads, data) -> None:
    x = (torch.rand(rows, width) * 200).to(stored)
    chosen = data.draw(st.lists(st.integers(0, rows - 1), max_size=50))
    ids = np.array(chosen, np.int64 if wide else np.int32)
    out = torch.full((len(ids), width + 1), 7.0, dtype=computed)
    ops.gather(x, ids, out=out[:, 1:], num_threads=num_threads)
    expected = x.float()[torch.from_numpy(ids).long()].to(computed)
    assert torch.equal(out[:, 1:], expected)
    assert (out[:, 0] == 7).all()


def drop(x: torch.Tensor, vertices: Any = None, **changed: Any) -> torch.Tensor:
    how = {"p": 0.5, "seed": 1, "step": 2, "layer": 3, "num_threads": 1} | changed
    y = x.clone()
    ops.relu_dropout(y, np.arange(len(x)) if vertices is None else vertices, **how)
    return y


def mixed(word: int) -> int:
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
    return word ^ word >> 31


def combined(key: int, word: int) -> int:
    return mixed((key + (word + 1) * 0x9E3779B97F4A7C15) % 2**64)


@pytest.mark.long
@settings(max_examples=30)
@given(st.data())
def test_relu_dropout_is_what_its_definition_says(data: st.DataObject) -> None:
    num_rows = data.draw(st.integers(0, 40))
    width = data.draw(st.integers(0, 70) | st.sampled_from([2047, 2048, 2049, 4100]))
    id_type = data.draw(st.sampled_from([np.int32, np.int64]))
    ids = st.integers(0, int(np.iinfo(id_type).max))
    vertices = np.array(data.draw(st.lists(ids, min_size=num_rows, max_size=num_rows)), id_type)
    seed, step, layer = (data.draw(st.integers(0, top)) for top in (2**64 - 1, 2**40, 63))
    p = data.draw(st.sampled_from([0.0, 0.25, 0.5]))
    x = torch.ones(num_rows, width, dtype=data.draw(st.sampled_from(COMPUTED)))
    threads = data.draw(st.sampled_from([1, 2]))
    how = {"p": p, "seed": seed, "step": step, "layer": layer, "num_threads": threads}
    found = drop(x, vertices, **how) > 0
    key = combined(combined(mixed(seed ^ 0xD1342543DE82EF95), step), layer)
    for row, vertex in enumerate(vertices.tolist()):
        draws = [combined(combined(key, vertex), number) for number in range((width + 3) // 4)]
        bits = [draws[j // 4] >> 16 * (j % 4) & 0xFFFF for j in range(width)]
        assert found[row].tolist() == [each >= p * 65536 for each in bits]


@pytest.mark.parametrize("width", [3, 256])
def test_dropped_elements_have_no_pattern(width: int) -> None:
    mask = (drop(torch.ones((1 << 18) // width, width)) > 0).double() - 0.5
    for rows in (0, 1, 2, 3, 4, 8, 64, 100):
        for columns in (0, 1, 2, 3, 4, 8, 16, 32, 64, 128):
            if rows + columns == 0 or columns >= width:
                continue
            near = mask[: len(mask) - rows, : width - columns] * mask[rows:, columns:]
            assert abs(float(near.sum())) * 4 < 4.5 * near.numel() ** 0.5


@settings(max_examples=30)
@given(st.data())
def test_edge_softmax_is_softmax(data: st.DataObject) -> None:
    indptr, indices, _ = block(data.draw)
    heads = data.draw(st.integers(1, 4))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    scores = torch.randn(len(indices), heads, generator=generator) * 10
    bias = torch.rand(len(indices), generator=generator) + 0.5
    leaf = logits = scores.double().requires_grad_()
    if biased := data.draw(st.booleans()):
        logits = leaf + bias.double().log()[:, None]
    alpha = ops.edge_softmax(indptr, scores, bias=bias.numpy() if biased else None, num_threads=2)
    parts = [logits[begin:end].softmax(0) for begin, end in pairwise(indptr)]
    expected = torch.cat(parts) if parts else torch.empty(0, heads).double()
    torch.testing.assert_close(alpha.double(), expected.detach(), rtol=1e-5, atol=1e-6)
    if len(indices):
        grad = torch.randn(alpha.shape, generator=generator)
        expected.backward(grad.double())
        back = ops.edge_softmax_backward(indptr, alpha, grad, num_threads=2)
        torch.testing.assert_close(back.double(), leaf.grad, rtol=1e-4, atol=1e-5)


def test_edge_dot_writes_one_column() -> None:
    a = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]])
    out = np.full((3, 2), -1, np.float32)
    indptr, indices = np.array([0, 1, 3]), np.array([2, 0, 1], np.int32)
    ops.edge_dot(a, x, indptr, indices, out=out[:, 1], num_threads=2)
    assert out.tolist() == [[-1, 15], [-1, 3], [-1, 4]]


def test_memory_that_is_given_back() -> None:
    # Together 1.5 GiB, of which a page of each is touched.
    blocks = [ops.empty((96 << 20,), torch.uint8) for _ in range(16)]
    for number, block in enumerate(blocks, start=1):
        block[0] = number
    del block
    while blocks:
        del blocks[0]
    again = [ops.empty((96 << 20,), torch.uint8) for _ in range(16)]
    marks = [int(block[0]) for block in again]
    assert marks[:8] == list(range(16, 8, -1))
    assert marks[-4:] == [0] * 4
    # Moved memory keeps its bytes.
    rows = torch.arange(1 << 20).numpy()
    for part in (rows, rows[5:], rows[:1], rows[:0]):
        ops.move_to_large_pages(part.view(np.uint8))
    assert (rows == np.arange(1 << 20)).all()
    # malloc is told to keep what is freed.
    glibc = platform.libc_ver()[0] == "glibc"
    assert ops.keep_freed_memory() in ((1 << 30, 32 << 20) if glibc else (0,))
