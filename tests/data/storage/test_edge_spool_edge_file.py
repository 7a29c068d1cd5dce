import numpy as np

from gnnscale.data.storage import edge_spool
from gnnscale.data.storage.edge_spool import EdgeBlock, EdgeFile

INT32 = np.dtype(np.int32)


def edges(*pairs):
    src, dst = np.array(pairs, np.int64).reshape(-1, 2).T
    return src, dst


def taken(file, num_edges):
    slices = file.take_last(num_edges)
    return [list(zip(src.tolist(), dst.tolist(), strict=True)) for src, dst in slices]


def test_the_last_edges_come_first(tmp_path, monkeypatch):
    monkeypatch.setattr(edge_spool, "_SLICE_EDGES", 2)
    file = EdgeFile(tmp_path / "some", INT32)
    for pairs in ([(0, 9), (1, 8)], [], [(2, 7), (3, 6), (4, 5)]):
        file.append(*edges(*pairs))
    assert taken(file, 3) == [[(3, 6), (4, 5)], [(2, 7)]]
    assert [each.stat().st_size for each in tmp_path.iterdir()] == [8, 8]
    assert taken(file, 2) == [[(0, 9), (1, 8)]]
    assert taken(file, 0) == []
    file.close()
    assert list(tmp_path.iterdir()) == []


def test_edges_at_their_places(tmp_path):
    file = EdgeFile(tmp_path / "some", INT32)
    file.write(2, *edges((2, 2)))
    file.write(0, *edges((0, 0), (1, 1)))
    file.num_edges = 3
    assert taken(file, 1) == [[(2, 2)]]
    assert taken(file, 2) == [[(0, 0), (1, 1)]]
    file.close()


def block_of(path):
    """Edges 0 -> 5, 1 -> 7 and 2 -> 5 to the vertices from 4 to 7."""
    block = EdgeBlock(path / "some", INT32, 4, 8)
    block.hold(np.array([0, 1], np.int32), np.array([5, 7], np.int32))
    block.hold(np.array([2], np.int32), np.array([5], np.int32))
    return block


def taken_edge_block(block):
    return sorted(pair for src, dst in block.take() for pair in zip(src, dst, strict=True))


def test_edges_that_are_held_take_no_disk(tmp_path):
    block = block_of(tmp_path)
    assert (block.num_edges, block.in_degrees().tolist()) == (3, [0, 2, 0, 1])
    assert taken_edge_block(block) == [(0, 5), (1, 7), (2, 5)]
    assert taken_edge_block(block) == []
    block.close()
    assert list(tmp_path.iterdir()) == []


def test_spilled_edges_are_counted_and_taken_like_those_that_are_held(tmp_path):
    block = block_of(tmp_path)
    block.spill()
    block.hold(np.array([3], np.int32), np.array([4], np.int32))
    assert (block.num_edges, block.in_degrees().tolist()) == (4, [1, 2, 0, 1])
    block.spill()
    assert block.in_degrees().tolist() == [1, 2, 0, 1]
    assert taken_edge_block(block) == [(0, 5), (1, 7), (2, 5), (3, 4)]
    block.close()
    assert list(tmp_path.iterdir()) == []
