from __future__ import annotations

import numpy as np
import pytest

from gnnscale.config import ConfigError
from gnnscale.export.answers import answer, check_layer

ROWS = np.log(np.float32([[1, 3], [4, 1]]))


def test_one_class_a_vertex() -> None:
    assert answer("classes", ROWS, multilabel=False).tolist() == [1, 0]
    probabilities = answer("probabilities", ROWS, multilabel=False)
    assert probabilities == pytest.approx(np.array([[0.25, 0.75], [0.8, 0.2]]))
    assert answer("logits", ROWS, multilabel=False) is ROWS


def test_several_classes_a_vertex() -> None:
    assert answer("classes", ROWS, multilabel=True).tolist() == [[0, 1], [1, 0]]
    probabilities = answer("probabilities", ROWS, multilabel=True)
    assert probabilities == pytest.approx(np.array([[0.5, 0.75], [0.8, 0.5]]))


def test_layers_count_from_the_end() -> None:
    def layers(layer: int, inference: str = "exact", what: str | None = None) -> int | None:
        return check_layer(layer, 3, inference=inference, what=what)

    assert [layers(layer) for layer in (-1, -2, -3)] == [None, 2, 1]
    assert layers(-1, "sampled", "logits") is None
    for layer in (-4, 0, 1):
        with pytest.raises(ConfigError, match=rf"layer={layer}: the model has 3 layers; allowed"):
            layers(layer)
    with pytest.raises(ConfigError, match="what=logits: is made of logits, and layer=-2"):
        layers(-2, what="logits")
    with pytest.raises(ConfigError, match="inference=sampled: gives logits alone"):
        layers(-2, "sampled")
    with pytest.raises(ConfigError, match="what=class: allowed are classes, probabilities, logits"):
        layers(-1, what="class")
