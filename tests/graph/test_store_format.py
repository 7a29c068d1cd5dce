import numpy as np

from gnnscale.graph.store_format import vertex_dtype


def test_ids_have_64_bits_where_32_are_too_few() -> None:
    assert [vertex_dtype(size) for size in (2**31 - 1, 2**31)] == [np.int32, np.int64]
