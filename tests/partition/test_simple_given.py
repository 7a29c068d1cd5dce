import numpy as np
import pytest

from gnnscale.core.errors import ConfigError
from gnnscale.partition.simple import FromFile


def assign(file, graph, num_parts):
    config = FromFile(owners=str(file))
    assert config.forecast(graph, num_parts=num_parts, num_hops=2, num_threads=1).memory_bytes > 0
    return config.assign(graph, num_parts=num_parts, num_hops=2, num_threads=1)


@pytest.mark.parametrize("dtype", ["u1", "i4", "i8"])
def test_owners_are_those_of_the_file(tmp_path, tiny_graph, dtype):
    file = tmp_path / "owners.npy"
    np.save(file, np.array([1, 0, 2, 2, 0], dtype))
    parts = assign(file, tiny_graph, 3)
    assert (parts.owner.tolist(), parts.owner.dtype) == ([1, 0, 2, 2, 0], np.int16)
    assert (parts.num_parts, parts.hops, parts.columns) == (3, None, None)


@pytest.mark.parametrize(
    ("owners", "message"),
    [
        ([0, 1, 0], r"an integer for each of 5 vertices, got int64 of shape \[3\]"),
        ([0.0, 1, 0, 1, 1], r"an integer for .* got float64 of shape \[5\]"),
        ([0, 1, 2, 1, 1], "owners from 0 to 1, a part for each device, got 0 to 2"),
        ([0, 1, -1, 1, 1], "owners from 0 to 1, .* got -1 to 1"),
    ],
)
def test_bad_owners_are_refused(tmp_path, tiny_graph, owners, message):
    file = tmp_path / "owners.npy"
    np.save(file, np.array(owners))
    with pytest.raises(ConfigError, match=message) as caught:
        assign(file, tiny_graph, 2)
    assert "\n" not in str(caught.value)


def test_bad_files_of_owners_are_refused(tmp_path, tiny_graph):
    file = tmp_path / "owners.npy"
    with pytest.raises(ConfigError, match=r"owners\.npy: missing"):
        assign(file, tiny_graph, 2)
    np.save(file, np.array([print] * 5), allow_pickle=True)
    with pytest.raises(ConfigError, match=r"partitioner\.owners="):
        assign(file, tiny_graph, 2)
    message = r"num_parts=6: expected at most the 5 training vertices of tiny"
    with pytest.raises(ConfigError, match=message):
        assign(file, tiny_graph, 6)
