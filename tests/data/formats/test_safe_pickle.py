import copyreg
import os
import pickle
import struct
from collections import OrderedDict, defaultdict
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.core.errors import GraphError
from gnnscale.data.formats.safe_pickle import array_of, load_pickle, parse_pickle, sparse_fields

PROTOCOLS = range(6)


def parse(data):
    return parse_pickle(data, source="x.pkl")


def refused(data):
    """Return why a pickle is refused."""
    with pytest.raises(GraphError, match=r"^x.pkl: cannot be read as plain data, byte \d+: ") as e:
        parse(data)
    assert str(e.value).isprintable()
    return str(e.value)


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
_LEAVES |= st.text() | st.binary()
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(-(2**50), 2**50), inner)
    ),
)


@pytest.mark.long
@settings(max_examples=20)
@given(_VALUES, st.sampled_from(PROTOCOLS))
def test_plain_data_is_what_pickle_says(value, protocol):
    assert parse(pickle.dumps(value, protocol)) == value


@pytest.mark.long
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_arrays(protocol):
    for dtype, order in product(["<i4", ">i8", "<f8", ">f4", "f2", "u1", "?", "<u8"], "CF"):
        array = np.asarray(np.arange(12).reshape(3, 4), dtype=dtype, order=order)
        found = array_of(parse(pickle.dumps(array, protocol)), axes=2, kinds="biuf", source="x")
        assert found.dtype == array.dtype.newbyteorder("=")
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_shared_arrays_sparse_matrices_and_dictionaries(protocol):
    array, matrix = np.arange(3), scipy.sparse.csr_matrix(np.eye(3, 4, dtype=np.float32))
    first, second, empty = parse(pickle.dumps([array, array, np.empty((0, 4), int)], protocol))
    assert first is second
    assert array_of(empty, axes=2, kinds="iu", source="x").shape == (0, 4)
    fields = sparse_fields(parse(pickle.dumps(matrix, protocol)), source="x")
    assert fields["_shape"] == (3, 4)
    for name in ("data", "indices", "indptr"):
        found = array_of(fields[name], axes=1, kinds="if", source="x")
        np.testing.assert_array_equal(found, getattr(matrix, name))
    lists = defaultdict(list, {0: [1, 2], 7: []})
    assert parse(pickle.dumps(lists, protocol)) == lists


def test_python_2_pickles():
    """Strings are bytes there, and modules have other names."""
    data = b"\x80\x02ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R(K\x00]K\x01au."
    assert parse(data) == {0: [1]}
    data = (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x02\x85cnumpy\ndtype\nU\x02i2K\x00K\x01\x87R"
        b"(K\x03U\x01>NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x04\x00\x07\xff\xfetb."
    )
    assert array_of(parse(data), axes=1, kinds="i", source="x").tolist() == [7, -2]


def test_depth_width_and_cycles_cost_no_recursion():
    cycle = []
    cycle.append(cycle)
    found = parse(pickle.dumps(cycle))
    assert found[0] is found
    assert isinstance(parse(b"N" + b"\x85" * 100_000 + b"."), tuple)
    # A list of two lists of two lists: two to the power of a thousand, if anyone counted.
    wide = parse(b"]q\x000" + b"(h\x00h\x00lq\x000" * 1000 + b"h\x00.")
    with pytest.raises(GraphError, match=r"x: holds a list, not an array"):
        array_of(wide, axes=1, kinds="iu", source="x")
    # Six bytes make Python's own unpickler ask for 16 GiB.
    assert parse(b"Nr\xff\xff\xff\x7f.") is None


class Runs:
    """Makes a folder when a pickle runs code."""

    def __init__(self, target):
        self.target = str(target)

    def __reduce__(self):
        return os.mkdir, (self.target,)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_reduce_runs_nothing(tmp_path, protocol):
    target = tmp_path / "stolen"
    runs = Runs(target)
    for value in (
        *(runs, [runs], {"graph": runs}, {(1, runs): 2}, OrderedDict(a=runs)),
        *(defaultdict(list, {0: [runs]}), np.array([runs], dtype=object)),
    ):
        refused(pickle.dumps(value, protocol))
        assert not target.exists()


def test_extensions_of_the_process_are_not_used(monkeypatch):
    copyreg.add_extension("os", "system", 77)
    try:
        assert "EXT1" in refused(b"\x82\x4d.")
    finally:
        copyreg.remove_extension("os", "system", 77)


_RECONSTRUCT = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
_MINUS = b"J\xff\xff\xff\xff"
OBJECT_FIELD = b"NU\x01a\x85}U\x01aU\x01OK\x00\x86sK\x08K\x01K\x00"


def dtype(code=b"i8", order=b"<", rest=b"NNN" + _MINUS * 2 + b"K\x00"):
    """A pickled dtype; ``rest`` is subarray, names, fields, size, alignment and flags."""
    state = b"(K\x03U" + bytes([len(order)]) + order + rest + b"t"
    return b"cnumpy\ndtype\nU" + bytes([len(code)]) + code + b"K\x00K\x01\x87R" + state + b"b"


def array(shape=b"K\x02\x85", kind=None, fortran=b"\x89", content=b"C\x10" + bytes(16)):
    kind = dtype() if kind is None else kind
    return _RECONSTRUCT + b"(K\x01" + shape + kind + fortran + content + b"tb."


#: One string as many arrays: each takes ten bytes of the file and a megabyte of memory.
ONE_STRING = (
    b"X" + struct.pack("<I", 1 << 20) + b"a" * (1 << 20) + b"q\x000c_codecs\nencode\nq\x010"
)
ONE_STRING += b"h\x01h\x00\x8c\x06latin1\x86R0" * 100 + b"N."
REFUSED = [
    # Every other operation.
    (b"cos\nsystem\n(S'true'\ntR.", "refused: it names os.system"),
    (b"\x8c\x02os\x8c\x06system\x93.", "refused: it names os.system"),
    (b"(S'true'\nios\nsystem\n.", "operation INST"),
    (b"(cnumpy\nndarray\no.", "operation OBJ"),
    (b"cos\nsystem\n)\x81.", "refused: it names os.system"),
    (b"cnumpy\nndarray\n)}\x92.", "operation NEWOBJ_EX"),
    (b"cnumpy\nndarray\n)\x81.", "refused: it calls a Global"),
    (b"\x82\x01.", "operation EXT1"),
    (b"\x84\x01\x00\x00\x00.", "operation EXT4"),
    (b"Pname\n.", "operation PERSID"),
    (b"Nq\x00Q.", "operation BINPERSID"),
    (b"\x97.", "operation NEXT_BUFFER"),
    (b"\x8f.", "operation EMPTY_SET"),
    (b"(\x91.", "operation FROZENSET"),
    (b"}}b.", "refused: it gives a state to a dict"),
    (b"cnumpy\ndtype\n}b.", "refused: it gives a state to a Global"),
    (b"]}b.", "refused: it gives a state to a list"),
    (b"NN\x86R.", "empty stack"),
    (b"K\x01)R.", "refused: it calls 1"),
    (b"ccollections\ndefaultdict\ncnumpy\ndtype\n\x85R.", "defaultdict of other things"),
    (b"ccopyreg\n_reconstructor\n(cnumpy\nndarray\nc__builtin__\nobject\nNtR.", "another"),
    (b"c_codecs\nencode\n\x8c\x01a\x8c\x04zlib\x86R.", "another encoding than latin1"),
    (b"c_codecs\nencode\n\x8c\x03\xe2\x82\xac\x8c\x06latin1\x86R.", "text in place of bytes"),
    (b"cbuiltins\nbytes\nK\x09\x85R.", "bytes with arguments"),
    (b"cnumpy..\nload\n.", "refused: it names numpy...load"),
    # Damaged data.
    (b"", "exhausted before seeing STOP"),
    (b"N", "exhausted before seeing STOP"),
    (b".", "empty stack"),
    (b"\xff", "unknown"),
    (b"1.", "mark that is not there"),
    (b"NN.", "it leaves 2 objects"),
    (b"]e.", "mark that is not there"),
    (b"h\x07.", "it recalls 7"),
    (b"Na.", "empty stack"),
    (b"NNa.", "it changes None"),
    (b"](K\x01u.", "it changes a list"),
    (b"}(K\x01u.", "a key without a value"),
    (b"}]Ns.", "refused: a list is the key"),
    (b"})Ns.", "refused: a tuple is the key"),
    (b"}G\x00\x00\x00\x00\x00\x00\x00\x00Ns.", "refused: 0.0 is the key"),
    (b"}\x8a\x08" + struct.pack("<q", 2**61 - 1) + b"Ns.", "is the key"),
    (b"}L" + b"9" * 4000 + b"L\nNs.", "refused: a number of 13288 bits is the key"),
    (b"B\xff\xff\xff\x7fx.", "damaged"),
    (b"\x8e" + struct.pack("<Q", 2**62) + b"x.", "damaged"),
    (b"\x8b\xff\xff\xff\x7f.", "damaged"),
    (b"L" + b"9" * 100_000 + b"L\n.", "damaged"),
    (b"V\\ud8", "damaged"),
    (b"S'\\m'\n.", "damaged: invalid escape"),
    (b"N" + b"r\xff\xff\xff\x7f" * 3, "exhausted"),
    (b"N" + b"\x94" * 9 + b".", "it remembers more than it holds"),
    # Arrays that lie.
    # Object fields, and flags that say there are none: NumPy dereferences the bytes.
    (array(kind=dtype(b"V8", b"|", OBJECT_FIELD)), "a dtype of 'V8'"),
    (array(kind=dtype(rest=b"NU\x01a\x85}" + _MINUS * 2 + b"K\x00")), "with fields or flags"),
    (array(kind=dtype(rest=b"NNN" + _MINUS * 2 + b"K\x3f")), "a dtype with fields"),
    (array(kind=dtype(rest=b"NNNK\x01" + _MINUS + b"K\x00")), "a dtype with fields"),
    (array(kind=dtype(rest=b"NNN")), "a dtype with a state of another form"),
    (array(kind=dtype(order=b"=")), "a dtype of byte order '='"),
    (array(kind=dtype(b"O8")), "a dtype of 'O8'"),
    (array(kind=dtype(b"i9")), "a dtype of 'i9'"),
    (array(kind=dtype(b"i8,i8")), "a dtype of 'i8,i8'"),
    # An object array whose state is an empty list.
    (_RECONSTRUCT + b"]b.", "an array with a state of another form"),
    (array(kind=dtype(b"O8"), content=b"]"), "a dtype of 'O8'"),
    (array(content=b"]"), "without its bytes"),
    (array(content=b"C\x08" + bytes(8)), r"int64[2] with 8 bytes"),
    (array(shape=b"K\x02"), "whose shape is no tuple"),
    (array(shape=b"\x88\x85"), "whose shape is no tuple"),
    (array(shape=b"G@\x00\x00\x00\x00\x00\x00\x00\x85"), "whose shape is no tuple"),
    (array(shape=b"(K\x01K\x01K\x01K\x01K\x02t"), "whose shape is no tuple"),
    (array(shape=b"\x8a\x09" + bytes(8) + b"\x01\x85"), "whose shape is no tuple"),
    (array(kind=b"N"), "an array without a type of numbers"),
    (array(kind=b"cnumpy\ndtype\nU\x02i8\x85R"), "an array without a type of numbers"),
    (array(fortran=b"N"), "an array with a state of another version"),
    (array()[:-1] + array()[len(_RECONSTRUCT) :], "filled twice"),
    (b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\ndtype\nK\x00\x85C\x01b\x87R.", "class"),
    (ONE_STRING, "its arrays have more bytes than the file"),
]


@pytest.mark.long
def test_what_is_refused():
    for data, message in REFUSED:
        assert message in refused(data)
    assert array_of(parse(array()), axes=1, kinds="i", source="x").tolist() == [0, 0]


def test_what_is_no_array_and_no_file(tmp_path):
    unfilled = _RECONSTRUCT + b"."
    for value, message in (
        *((b"K\x07.", "holds 7"), (b"].", "holds a list"), (unfilled, "x: holds a ArrayRecord")),
    ):
        with pytest.raises(GraphError, match=f"{message}, not an array"):
            array_of(parse(value), axes=1, kinds="iu", source="x")
    with pytest.raises(GraphError, match=r"x: holds a list, not a sparse matrix"):
        sparse_fields([], source="x")
    (tmp_path / "x").write_bytes(pickle.dumps([1]))
    assert load_pickle(tmp_path / "x") == [1]
    with pytest.raises(GraphError, match=r"y: missing"):
        load_pickle(tmp_path / "y")
    with pytest.raises(GraphError, match=r"not a regular file"):
        load_pickle(Path("/dev/zero"))


def test_no_module_of_the_readers_imports_pickle():
    """Neither does torch.load: both would run what a file names."""
    folder = Path(__file__).parents[3] / "gnnscale" / "data"
    files = list(folder.rglob("*.py"))
    assert files
    for file in files:
        for line in file.read_text().splitlines(keepends=True):
            assert not line.lstrip().startswith(("import pickle\n", "from pickle ")), file
            assert "torch.load" not in line, file
