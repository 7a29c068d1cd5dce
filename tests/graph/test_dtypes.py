from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from one_line import one_line

from gnnscale.core.errors import GraphError
from gnnscale.graph import Graph, dtypes
from gnnscale.graph.dtypes import MAX_QUANTIZED, as_float32, quantized, row_bytes, row_length

LOSSY = tuple(MAX_QUANTIZED)


def split(graph: Graph) -> Graph:
    thirds = np.split(np.arange(300), 3)
    return graph.with_split(train_idx=thirds[0], valid_idx=thirds[1], test_idx=thirds[2])


def row(scale: float, *rest: int) -> list[int]:
    return [*np.float32(scale).tobytes(), *rest]


def test_rows_by_hand() -> None:
    rows = np.float32([[127, -127, 2.5], [0, 0, 0], [-254, 1, 3]])
    # Ties go to the even number: 2.5 becomes 2, and 1 / 2 becomes 0.
    int8_rows = [row(1, 127, 129, 2), row(0, 0, 0, 0), row(2, 129, 0, 2)]
    assert quantized(rows, "int8").tolist() == int8_rows
    rows = np.float32([[7, -7, 2.5], [0, 0, 0], [-14, 1, 3]])
    found = quantized(rows, "int4")
    assert found.tolist() == [row(1, 0x97, 0x02), row(0, 0, 0), row(2, 0x09, 0x02)]
    assert as_float32(found, "int4", 3).tolist() == [[7, -7, 2], [0, 0, 0], [-14, 0, 4]]
    assert [row_length("int8", width) for width in (0, 1, 602)] == [4, 5, 606]
    assert [row_length("int4", width) for width in (0, 1, 2, 3, 602)] == [4, 5, 5, 6, 305]
    assert [row_bytes(dtype, 100) for dtype in ("float32", "bfloat16", "uint8")] == [400, 200, 100]
    limits = np.finfo(np.float32)
    rows = np.float32([[limits.max, -limits.max], [limits.smallest_subnormal, 0]])
    for dtype in LOSSY:
        decoded = as_float32(quantized(rows, dtype), dtype, 2)
        np.testing.assert_allclose(decoded[0], rows[0], rtol=1e-6)
        assert decoded[1].tolist() == [0, 0]


@settings(max_examples=50)
@given(
    dtype=st.sampled_from(LOSSY),
    rows=st_numpy.arrays(
        np.float32,
        st.tuples(st.integers(0, 5), st.integers(0, 9)),
        elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
    ),
)
def test_no_value_moves_by_more_than_half_of_the_scale(dtype: str, rows: Any) -> None:
    encoded = quantized(rows, dtype)
    assert encoded.shape == (len(rows), row_length(dtype, rows.shape[1]))
    scales = dtypes.scales_of(encoded).astype(np.float64)[:, None]
    numbers = dtypes.numbers_of(encoded, dtype, rows.shape[1])
    assert (np.abs(numbers) <= MAX_QUANTIZED[dtype]).all()
    assert (np.abs(rows - scales * numbers) <= scales / 2).all()
    decoded = as_float32(encoded, dtype, rows.shape[1])
    assert np.isfinite(decoded).all()
    assert (decoded == (scales * numbers).astype(np.float32)).all()


@pytest.mark.parametrize(("dtype", "width"), [("int4", 3), ("int4", 4), ("int8", 3)])
def test_a_graph_is_quantized_saved_and_opened(random_graph, tmp_path, dtype, width) -> None:
    graph = split(random_graph(num_features=width))
    lossy = graph.with_quantized_features(dtype)
    assert (lossy.num_features, lossy.row_bytes) == (width, row_bytes(dtype, width))
    lossy.save(tmp_path / "store")
    found = Graph.open(tmp_path / "store")
    assert (found.feature_dtype, found.num_features) == (dtype, width)
    assert np.array_equal(found.features, quantized(graph.features, dtype))
    again = found.with_quantized_features(dtype)
    assert (again.num_features, again.feature_dtype) == (width, dtype)


def test_rows_of_another_length_are_other_content(random_graph: Any, tmp_path: Path) -> None:
    # The last half of a byte is 0 in both: their bytes are the same.
    wide = split(random_graph(num_features=4))
    wide.features[:, 3] = 0
    narrow = replace(wide, features=wide.features[:, :3])
    graphs = [each.with_quantized_features("int4") for each in (narrow, wide)]
    assert np.array_equal(graphs[0].features, graphs[1].features)
    for number, each in enumerate(graphs):
        each.save(tmp_path / str(number))
    contents = {Graph.open(tmp_path / str(number)).content for number in range(2)}
    assert len(contents) == 2
    graph = random_graph(num_features=2)
    with one_line("float16", "allowed are int8 and int4", error=GraphError):
        graph.with_quantized_features("float16")
    rows = np.array(graph.features)
    rows[1, 1] = np.inf
    with one_line("features must be finite", error=GraphError):
        replace(graph, features=rows).with_quantized_features("int8")
