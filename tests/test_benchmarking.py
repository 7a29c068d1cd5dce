"""Benchmarks leave out a peer that is not installed, and say so in one line."""

from __future__ import annotations

from pathlib import Path

import benchmarking
import peers
import pytest

WORKER = """
import sys
from benchmarking import installed, serve
with installed(sys.argv[2]):
    if sys.argv[2] == "absent":
        import a_library_that_nobody_has
serve(lambda number: {"s": 2.0 + number})
"""


def test_a_system_that_is_not_installed_is_left_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(benchmarking.__file__).parent))
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    found = benchmarking.interleave(["here", "absent"], rounds=3, threads=1, argv=[str(script)])
    # The round that comes first does not count.
    assert found == {"here": {"s": 4.0}}
    assert capfd.readouterr().err.splitlines() == [
        "absent: No module named 'a_library_that_nobody_has'",
        "absent is left out: it did not start",
    ]


@pytest.mark.parametrize(
    ("has", "used"),
    [
        ({"pyg-lib", "torch-sparse"}, {"pyg-lib", "torch-sparse"}),
        ({"pyg-lib"}, {"pyg-lib"}),
        ({"torch-sparse"}, {"torch-sparse"}),
        (set(), set()),
    ],
)
def test_pyg_samples_with_either_library(
    has: set[str], used: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch_geometric")
    from torch_geometric import typing

    for library in ("pyg-lib", "torch-sparse"):
        monkeypatch.setattr(typing, "WITH_PYG_LIB", "pyg-lib" in has)
        monkeypatch.setattr(typing, "WITH_TORCH_SPARSE", "torch-sparse" in has)
        if library in used:
            peers.sample_with(library)
            assert peers.sampling_library() == library
        else:
            with pytest.raises(ImportError):
                peers.sample_with(library)
