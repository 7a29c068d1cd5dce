"""Table 3 of PyTorch-Direct, all six rows."""

import pytest

from gnnscale.features.unified import Output, Placement, place

GPU = Placement(on_gpu=True, output=Output.GPU)


def unified(*, on_gpu: bool, propagated: bool = False) -> Placement:
    return Placement(on_gpu=on_gpu, output=Output.UNIFIED, propagated_to_cuda=propagated)


ALL, SOME, NONE = [True, True], [True, False], [False]


@pytest.mark.parametrize(
    ("has_cpu", "has_gpu", "prefers", "expected"),
    [
        (True, False, ALL, unified(on_gpu=True)),
        (True, True, ALL, unified(on_gpu=True)),
        (True, False, SOME, unified(on_gpu=True)),
        (True, True, SOME, unified(on_gpu=True)),
        (True, False, NONE, unified(on_gpu=False)),
        (True, True, NONE, unified(on_gpu=False)),
        (False, True, ALL, GPU),
        (False, True, SOME, unified(on_gpu=True, propagated=True)),
        (False, True, NONE, unified(on_gpu=True, propagated=True)),
        (False, False, ALL, GPU),
        (False, False, SOME, unified(on_gpu=True)),
        (False, False, NONE, unified(on_gpu=False)),
    ],
)
def test_the_table(has_cpu: bool, has_gpu: bool, prefers: list[bool], expected: Placement) -> None:
    assert place(has_cpu=has_cpu, has_gpu=has_gpu, prefers=prefers) == expected
