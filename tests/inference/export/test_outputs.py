import numpy as np
import pytest

from gnnscale.core.errors import ConfigError
from gnnscale.inference.export.outputs import RowIds, answer, check_layer

ROWS = np.log(np.float32([[1, 3], [4, 1]]))


def test_one_class_or_several_a_vertex() -> None:
    assert answer("classes", ROWS, multilabel=False).tolist() == [1, 0]
    probabilities = answer("probabilities", ROWS, multilabel=False)
    assert probabilities == pytest.approx(np.array([[0.25, 0.75], [0.8, 0.2]]))
    assert answer("logits", ROWS, multilabel=False) is ROWS
    assert answer("classes", ROWS, multilabel=True).tolist() == [[0, 1], [1, 0]]
    probabilities = answer("probabilities", ROWS, multilabel=True)
    assert probabilities == pytest.approx(np.array([[0.5, 0.75], [0.8, 0.5]]))


def test_layers_count_from_the_end() -> None:
    def layers(layer: int, inference: str = "exact", what: str | None = None) -> int | None:
        return check_layer(layer, 3, inference=inference, what=what)

    assert [layers(layer) for layer in (-1, -2, -3)] == [None, 2, 1]
    assert layers(-1, "sampled", "logits") is None
    for layer in (-4, 0, 1):
        with pytest.raises(ConfigError, match=rf"layer={layer}: expected -3 to -1 for a model"):
            layers(layer)
    with pytest.raises(ConfigError, match="what=logits: expected null with layer=-2"):
        layers(-2, what="logits")
    with pytest.raises(ConfigError, match="inference=sampled: expected exact with layer"):
        layers(-2, "sampled")
    with pytest.raises(ConfigError, match="what=class: allowed are classes, probabilities, logits"):
        layers(-1, what="class")


def test_numbers_of_vertices() -> None:
    every = RowIds(vertices=None)
    assert every.are_rows
    assert every.slice(3, 2).tolist() == [3, 4]
    some = RowIds(vertices=np.array([7, 5, 9], np.int32))
    assert not some.are_rows
    assert some.array(1, 2).tolist() == [5, 9]
    assert some.array(0, 3).dtype == np.int64


def test_ids_of_the_users_own() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    texts = pyarrow.array(["a", "bcd", "ef"], pyarrow.large_string())
    every = RowIds(vertices=None, user_ids=texts)
    assert not every.are_rows
    assert every.slice(1, 2).to_pylist() == ["bcd", "ef"]
    some = RowIds(vertices=np.array([2, 0]), user_ids=texts)
    assert some.slice(0, 2).to_pylist() == ["ef", "a"]
    # One width for all slices.
    assert [some.array(first, 1).dtype for first in (0, 1)] == [np.dtype("<U3")] * 2
    assert some.array(0, 2).tolist() == ["ef", "a"]
    numbers = RowIds(vertices=np.array([1]), user_ids=pyarrow.array([10, 20], pyarrow.uint64()))
    assert numbers.array(0, 1).tolist() == [20]
    assert numbers.array(0, 0).dtype == np.uint64
    texts = RowIds(
        vertices=None, user_ids=pyarrow.array(["a" * 9, "b" * 31], pyarrow.large_string())
    )
    assert (texts.are_texts, texts.longest, texts.array_bytes) == (True, 31, 4 * 31)
    assert 20 <= texts.mean_bytes <= 20 + 2 * 8
    numbers = RowIds(vertices=np.array([1]), user_ids=pyarrow.array([10, 20], pyarrow.uint64()))
    assert (numbers.are_texts, numbers.array_bytes, numbers.mean_bytes) == (False, 8, 8)
    rows = RowIds(vertices=None)
    assert (rows.are_texts, rows.array_bytes, rows.mean_bytes) == (False, 8, 8)
