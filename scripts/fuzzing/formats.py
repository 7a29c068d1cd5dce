"""Edits that know a format, so that damage gets past the first check of it."""

import base64
import contextlib
import functools
import io
import json
import pickle
import pickletools
import random
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from itertools import islice
from typing import Any, TypeAlias

from .case import Edited, Files, Keep, case_rng
from .mutate import BYTES, INTEGERS, NUMBERS, TEXT, Edit, words

_SHAPES = (
    *words("() (0,) (1,) (-1,) (3.5,) (4294967296,) (9223372036854775807,) (None,) 'x' [4]"),
    *("(2,) * 2", "(1, 1, 1, 1, 1)", "(2, 2)", "(0, 0)", "(1000000000, 4)", "(12,)", "(12, 1)"),
    *("(True,)", "(99999999999999999999999,)", "(1,), 'extra': 1", "(4294967296, 4294967296)"),
)
_DESCRS = (
    *words("""
    '<i4' '<i8' '>i4' '>i8' '<u8' '<u2' '|i1' '|b1' '<f2' '<f4' '<f8' '|O' 'O' '<U3' '|S7' '<M8[s]'
    '<m8' '<c16' '|V4' '<f16' '' None '<i4,<f8' 3 '|V0' '<U0' 'int' b'<i4'
    """),
    *("[('a', '<i4')]", "[('a', '<i4', (2,)), ('b', '|O')]", "('<i4', (2, 2))", "'i4, (2,3)f8'"),
    "{'names': ['a'], 'formats': ['<i4']}",
)
_HEADER = re.compile(rb"\x93NUMPY(.)\x00(..)(\{.*?\}) *\n", re.DOTALL)
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{40,}={0,2}")
#: Bytes of a text that is edited.
_MAX_INNER = 64 << 20
_NAMES = (
    *("../../esc.npy", "/esc.npy", "..\\esc.npy", "a\x00b.npy", "x" * 300, "", "indptr.npy"),
    *("\x1b[2J", "target.csv", "data.pkl", "../../../executed", "__init__.py", "CON"),
)
_ODD: tuple[Any, ...] = (
    *(None, True, -1, 1.5, "x", "", [], {}, [[0]], [0, [1]], "@number@", "@number@", 2**31),
    -(2**63),
)
#: Edits the content of a file that has a name.
Inner: TypeAlias = Callable[[str, bytes, random.Random], bytes]


def npy_header(data: bytes, rng: random.Random) -> bytes:
    found = _HEADER.match(data)
    if not found:
        return rng.choice(BYTES)(data, rng)
    text = found[3].decode("latin1")
    kind = rng.randrange(5)
    if kind == 0:
        text = re.sub(r"'shape': \(.*?\)", lambda _: f"'shape': {rng.choice(_SHAPES)}", text)
    elif kind == 1:
        text = re.sub(r"'descr': '.*?'", lambda _: f"'descr': {rng.choice(_DESCRS)}", text)
    elif kind == 2:
        order = rng.choice(("True", "1", "None", "'x'"))
        text = re.sub(r"'fortran_order': \w+", f"'fortran_order': {order}", text)
    elif kind == 3:
        text = rng.choice(TEXT)(text.encode("latin1"), rng).decode("latin1")
    else:
        deep = ("[" * 5000, "(" * 200, "{'a': " * 100, "1" * 5000, "-" * 3000, "{}", "...")
        text = rng.choice(deep)
    size = max(struct.unpack("<H", found[2])[0], len(text) + 1)
    padded = text.ljust(size - 1)[:65534].encode("latin1", "replace") + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded + data[found.end() :]


def npy_element(data: bytes, rng: random.Random) -> bytes:
    """Overwrite one element of a .npy file, its size unchanged."""
    found = _HEADER.match(data)
    size = re.search(rb"'descr': '[<|][a-z]([1-9])'", data[:128])
    if not found or not size or len(data) <= found.end():
        return rng.choice(BYTES)(data, rng)
    width = int(size[1])
    at = found.end() + width * rng.randrange(max(1, (len(data) - found.end()) // width))
    if rng.random() < 0.2:
        value = struct.pack("<d", rng.choice((float("nan"), float("inf"), -1.0, 1e300)))[-width:]
    else:
        value = (rng.choice(INTEGERS) % (1 << 8 * width)).to_bytes(width, "little")
    return data[:at] + value + data[at + width :]


def json_value(data: bytes, rng: random.Random) -> bytes:
    """Replace, repeat or nest a value of a JSON file."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):  # of an edit before this one
        value = None
    if not isinstance(value, (dict, list)):
        return rng.choice(TEXT)(data, rng)
    kind = rng.randrange(8)
    if kind == 0:
        depth = rng.choice((10, 1000, 100_000))
        return data + b"[" * depth if rng.random() < 0.3 else b'{"0":' * depth + data + b"}" * depth
    if kind == 1 and isinstance(value, dict) and value:
        key = rng.choice(list(value))
        return b"{" + json.dumps(key).encode() + b": [7]," + data.lstrip()[1:]
    if kind == 2:
        return json.dumps([value] if rng.random() < 0.5 else {"0": value}).encode()
    _replace(value, rng)
    text = json.dumps(value)
    return text.replace('"@number@"', rng.choice(NUMBERS)).encode("utf-8", "surrogatepass")


def _replace(value: Any, rng: random.Random) -> None:
    """Put something else at one place below ``value``."""
    while True:
        places = list(value) if isinstance(value, dict) else range(len(value))
        if not places:
            return
        at = rng.choice(places)
        if isinstance(value[at], (dict, list)) and len(value[at]) and rng.random() < 0.7:
            value = value[at]
            continue
        if isinstance(value, dict) and rng.random() < 0.3:
            value[rng.choice((*NUMBERS, "\u202e", "\x1b[1m"))] = value.pop(at)
        else:
            value[at] = rng.choice(_ODD)
        return


def json_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    lines[at] = json_value(lines[at], rng)
    return b"\n".join(lines)


def safetensors(data: bytes, rng: random.Random) -> bytes:
    """Edit the JSON header of a .safetensors file, and mostly its length with it."""
    size = int.from_bytes(data[:8], "little")
    header = json_value(data[8 : 8 + size], rng)
    if rng.random() < 0.8:
        size = len(header)
    return size.to_bytes(8, "little") + header + data[8 + int.from_bytes(data[:8], "little") :]


def packed_value(data: bytes, rng: random.Random) -> bytes:
    """Edit the plain values of a checkpoint; sizes and the checksum at its end agree with them."""
    size = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + size])
        begin, end = header["values"]["data_offsets"]
    except (ValueError, KeyError, TypeError):  # of an edit before this one
        return rng.choice(BYTES)(data, rng)
    body = data[8 + size :]
    values = json_value(body[begin:end], rng)
    end = begin + len(values)
    header["values"].update(shape=[len(values)], data_offsets=[begin, end])
    if "crc32" in header:
        header["crc32"].update(data_offsets=[end, end + 4])
    text = json.dumps(header).encode()
    changed = len(text).to_bytes(8, "little") + text + body[:begin] + values
    return changed + zlib.crc32(changed).to_bytes(4, "little") if "crc32" in header else changed


def parquet_footer(data: bytes, rng: random.Random) -> bytes:
    """Edit what the end of a Parquet file says of the rest, its length with it; or that alone."""
    size = int.from_bytes(data[-8:-4], "little")
    if data[-4:] != b"PAR1" or not 0 < size <= len(data) - 12:
        return rng.choice(BYTES)(data, rng)
    body, footer = data[: -8 - size], data[-8 - size : -8]
    kind = rng.randrange(8)
    if kind == 0:
        return data[:-8] + rng.choice(INTEGERS).to_bytes(16, "little", signed=True)[:4] + b"PAR1"
    if kind == 1:  # its schema of Arrow, in base64
        found = _BASE64.search(footer)
        if found:
            text = found[0]
            letters = text.rstrip(b"=")
            # After an edit before this one, a letter may be left over, which holds no whole byte.
            whole = letters[:-1] if len(letters) % 4 == 1 else letters
            edited = rng.choice(BYTES)(base64.b64decode(whole + b"=" * (-len(whole) % 4)), rng)
            packed = base64.b64encode(edited)[: len(text)].ljust(len(text), b"A")
            return data[: -8 - size] + footer.replace(text, packed) + data[-8:]
    if kind <= 4:  # a number of seven bits a byte: counts of rows and values, sizes, places
        at = rng.randrange(size)
        value = rng.choice((0, 1, 2, 0x7E, 0x7F, footer[at] ^ 1, (footer[at] + 2) % 256))
        footer = footer[:at] + bytes([value]) + footer[at + 1 :]
    elif kind == 5:  # as large as numbers get
        at = rng.randrange(size)
        large = b"\xfe\xff\xff\xff" + rng.choice((b"\x0f", b"\xff\xff\x7f"))
        footer = footer[:at] + large + footer[at + 1 :]
    else:
        footer = rng.choice(BYTES)(footer, rng)
    return body + footer + len(footer).to_bytes(4, "little") + b"PAR1"


# --- archives ---------------------------------------------------------------------------------


def member(data: bytes, rng: random.Random) -> bytes:
    """Edit a member of a zip, as its name suggests."""
    return zip_member(data, rng, edit_file)


def zip_member(data: bytes, rng: random.Random, edit: Inner) -> bytes:
    """Edit what is inside a member of a zip, or its name, and pack it again."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except Exception:  # it is damaged already, by an earlier edit
        return rng.choice(BYTES)(data, rng)
    kind, at = rng.randrange(12), rng.randrange(len(members)) if members else 0
    if not members:
        return data
    name, content = members[at]
    if kind == 0:
        members[at] = (rng.choice(_NAMES), content)
    elif kind == 1:
        members.append((name, edit(name, content, rng)))
    elif kind == 2:
        del members[at]
    else:
        members[at] = (name, edit(name, content, rng))
    out = io.BytesIO()
    method = rng.choice((0, 8, 8, 12, 14))
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", method) as archive:
        warnings.simplefilter("ignore")  # names may repeat
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            archive.writestr(info, content)
    return out.getvalue()


def zip_fields(data: bytes, rng: random.Random) -> bytes:
    """Overwrite flags, method, checksum, sizes or offsets in the headers of a zip."""
    changed = bytearray(data)
    heads = [found.start() for found in re.finditer(rb"PK\x01\x02|PK\x03\x04|PK\x05\x06", data)]
    if not heads:
        return data
    for _ in range(rng.choice((1, 1, 2))):
        head = rng.choice(heads)
        kind = changed[head + 2]
        fields = ((4, 2), (6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2))
        if kind == 5:
            fields = ((8, 2), (10, 2), (12, 4), (16, 4), (20, 2))
        at, width = rng.choice(fields)
        at += 2 if kind == 1 else 0
        values = (1, 8, 9, 12, 14, 93, 95, 99, 0x800, 0x2041, rng.choice(INTEGERS))
        value = (rng.choice(values) % (1 << 8 * width)).to_bytes(width, "little")
        changed[head + at : head + at + width] = value
    return bytes(changed)


def zip_bomb(data: bytes, rng: random.Random) -> bytes:
    """Let a member unpack to 4 GB; seldom, since it takes time."""
    if rng.random() > 0.05:
        return zip_fields(data, rng)
    try:
        names = zipfile.ZipFile(io.BytesIO(data)).namelist()
    except Exception:
        return data
    name = rng.choice(names).encode("utf-8", "replace") if names else b"x"
    packed = _many_times(rng.choice((b"1,1\n", b"[", b" ", b"\x80", b"\x00")))
    sizes = struct.pack("<III", 0, len(packed), 2**32 - 2)
    fields = struct.pack("<HHHHH", 20, 0, 8, 0, 0x21) + sizes
    local = b"PK\x03\x04" + fields + struct.pack("<HH", len(name), 0) + name + packed
    places = struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, 0, 0)
    central = b"PK\x01\x02\x14\x00" + fields + places + name
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)
    return local + central + end


def gzip_inner(name: str, data: bytes, rng: random.Random, edit: Inner) -> bytes:
    """Edit what is inside a .gz file; or its bytes; seldom let it unpack to 4 GB."""
    kind = rng.random()
    if kind < 0.2:
        return rng.choice(BYTES)(data, rng)
    if kind < 0.205:
        return data[:10] + _many_times(rng.choice((b"1,1\n", b"9", b"\n", b",")))
    unpack = zlib.decompressobj(31)
    try:
        inner = unpack.decompress(data, _MAX_INNER)
    except zlib.error:
        return rng.choice(BYTES)(data, rng)
    if not unpack.eof:  # an earlier edit made it a bomb, or cut it off
        return rng.choice(BYTES)(data, rng)
    pack = zlib.compressobj(1, zlib.DEFLATED, 31)
    return pack.compress(edit(name[: -len(".gz")], inner, rng)) + pack.flush()


@functools.lru_cache
def _many_times(pattern: bytes) -> bytes:
    """Return a deflate stream of about 4 GB of ``pattern``, made of equal blocks."""
    pack = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = pack.compress(pattern * ((16 << 20) // len(pattern))) + pack.flush(zlib.Z_FULL_FLUSH)
    return block * 255 + pack.flush()


# --- pickles: edited, and such that would execute something if they were believed -------------

#: What hostile input asks to be done: it would leave a file that is looked for.
COMMAND = "touch executed"
_SHELL = COMMAND.encode()


def _callables() -> dict[str, bytes]:
    """Return opcodes that push functions; all of them need a name that nobody should admit."""
    names = {
        **{"system": ("os", "system"), "posix": ("posix", "system"), "eval": ("builtins", "eval")},
        **{"exec": ("__builtin__", "exec"), "popen": ("subprocess", "Popen")},
        **{"runpy": ("runpy", "_run_code"), "torch": ("torch", "load"), "numpy": ("numpy", "load")},
        "attribute": ("collections", "defaultdict.__init__.__globals__"),
        "module": ("numpy", "os.system"),
    }
    globals_ = {key: f"c{module}\n{name}\n".encode() for key, (module, name) in names.items()}
    stacked = {key: _text(module) + _text(name) + b"\x93" for key, (module, name) in names.items()}
    return globals_ | {f"{key} by stack": push for key, push in stacked.items()}


def _text(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


def _hostile() -> dict[str, bytes]:
    """Return a pickle for every opcode that can call something."""
    argument = _text(COMMAND)
    found: dict[str, bytes] = {}
    for name, push in _callables().items():
        found[f"reduce {name}"] = b"\x80\x04" + push + argument + b"\x85R."
        found[f"newobj {name}"] = b"\x80\x04" + push + argument + b"\x85\x81."
        found[f"newobj_ex {name}"] = b"\x80\x04" + push + argument + b"\x85}\x92."
        found[f"obj {name}"] = b"\x80\x04(" + push + argument + b"o."
        found[f"build {name}"] = b"\x80\x04" + push + b"}" + argument + b"Nsb."
    found["inst"] = b"(S'" + _SHELL + b"'\nios\nsystem\n."
    found["persid"] = b"Pos.system\n."
    found["binpersid"] = b"\x80\x04" + argument + b"Q."
    found["ext1"] = b"\x80\x02\x82\x01."
    found["ext4"] = b"\x80\x02\x84\x01\x00\x00\x00."
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tC\x01btR"
    dtype = b"cnumpy\ndtype\n(X\x02\x00\x00\x00O8K\x00K\x01tR"
    # States that NumPy's own __setstate__ believes.
    for code in ("i8", "V8", "O8"):
        names = b"(" + _text("a") + b"t"
        field = b"}" + _text("a") + b"(" + dtype + b"K\x00ts"
        kind = b"cnumpy\ndtype\n(" + _text(code) + b"K\x00K\x01tR"
        state = b"(K\x03" + _text("|") + b"N" + names + field + b"K\x08K\x01K\x00tb"
        found[f"dtype of objects in {code}"] = b"\x80\x04" + kind + state + b"."
        content = b"C\x08\x41\x41\x41\x41\x41\x41\x41\x41"
        filled = array + b"(K\x01(K\x01t" + kind + state + b"\x89" + content + b"tb"
        found[f"array of objects in {code}"] = b"\x80\x04" + filled + b"."
    for content, name in ((b"]", "no list"), (b"N", "none"), (b"C\x08AAAAAAAA", "bytes")):
        state = b"(K\x01(K\x01t" + dtype + b"\x89" + content + b"tb"
        found[f"object array of {name}"] = b"\x80\x04" + array + state + b"."
    huge = b"(K\x01(\x8a\x08" + struct.pack("<q", 2**62) + b"t"
    found["huge array"] = b"\x80\x04" + array + huge + dtype.replace(b"O8", b"i8") + b"\x89C\x00tb."
    found["recursive list"] = b"\x80\x02]q\x00h\x00a."
    found["deep tuples"] = b"\x80\x02N" + b"\x85" * 100_000 + b"."
    found["deep lists"] = b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."
    found["long integer"] = b"\x80\x02\x8b\xff\xff\xff\x7f" + b"\x01" * 100 + b"."
    found["huge memo"] = b"\x80\x02Nr\xff\xff\xff\x7f."
    found["huge string"] = b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"x."
    found["frame"] = b"\x80\x04\x95" + struct.pack("<Q", 2**63 - 1) + b"N."
    found["doubled"] = b"\x80\x02" + b"]q\x00(h\x00h\x00e" + b"(h\x00h\x00e" * 30 + b"."
    found["decimal"] = b"I" + b"9" * 50_000 + b"\n."
    return found


#: Pickles by what they try.
HOSTILE: dict[str, bytes] = _hostile()


def _hostile_one(rng: random.Random) -> bytes:
    return HOSTILE[rng.choice(list(HOSTILE))]


def edit_opcodes(data: bytes, rng: random.Random) -> bytes:
    """Leave out, repeat, exchange or insert opcodes, or change an argument."""
    places = _opcodes(data)
    if len(places) < 3:
        return rng.choice(BYTES)(data, rng)
    at = rng.randrange(len(places) - 1)
    begin, end = places[at], places[at + 1]
    kind = rng.randrange(6)
    if kind == 2:
        other = rng.randrange(len(places) - 1)
        return data[:begin] + data[places[other] : places[other + 1]] + data[end:]
    if kind == 3:
        return data[:begin] + _hostile_one(rng)[2:-1] + data[begin:]
    if kind == 4:
        return data[:begin] + bytes([rng.choice(_CODES)]) + data[begin:]
    number = pickle.dumps(rng.choice(INTEGERS), 2)[2:-1]
    middle = {0: b"", 1: data[begin:end] * 2, 5: number}[kind]
    return data[:begin] + middle + data[end:]


_CODES = tuple(ord(opcode.code) for opcode in pickletools.opcodes)


def _opcodes(data: bytes) -> list[int]:
    """Return where the first opcodes begin, as far as they can be read."""
    places: list[int] = []
    with contextlib.suppress(Exception):  # damaged already, or cut
        places += (place for _, _, place in islice(pickletools.genops(data[:20_000]), 501))
    return places


#: Opcodes are edited, or a hostile pickle takes the place of this one, or of its end.
PICKLE: tuple[Edit, ...] = (edit_opcodes,) * 8 + (lambda _, rng: _hostile_one(rng),) * 4
PICKLE += (lambda data, rng: data[:-1] + _hostile_one(rng),)


# --- files, by their names --------------------------------------------------------------------

_ARCHIVE: tuple[Edit, ...] = (*(member,) * 10, *(zip_fields,) * 4, zip_bomb)
_BY_SUFFIX: dict[str, tuple[Edit, ...]] = {
    ".npy": (npy_header, npy_header, npy_element, npy_element, npy_element, *BYTES),
    ".safetensors": (safetensors,) * 8 + BYTES,
    ".json": (json_value,) * 8 + TEXT,
    ".jsonl": (json_lines,) * 8 + TEXT,
    **dict.fromkeys((".npz", ".zip", ".pt"), _ARCHIVE + BYTES),
    **dict.fromkeys((".csv", ".txt", ".index", ".yaml"), TEXT),
    ".pkl": PICKLE + BYTES,
    ".parquet": (parquet_footer,) * 8 + BYTES,
}


def edits_for(name: str) -> tuple[Edit, ...]:
    suffix = name[name.rfind(".") :] if "." in name else ""
    if name.rpartition("/")[2].startswith("ind.") and suffix != ".index":
        suffix = ".pkl"
    return _BY_SUFFIX.get(suffix, BYTES)


def edit_file(name: str, data: bytes, rng: random.Random) -> bytes:
    """Edit the content of a file, as its name suggests."""
    if name.endswith(".gz"):
        return gzip_inner(name, data, rng, edit_file)
    return rng.choice(edits_for(name))(data, rng)


def damaged(files: Files, key: str, number: int, num_edits: int, keep: Keep) -> Edited:
    """Return the files with some of them edited, and which edits these were.

    Every edit has random numbers of its own, so that one can be left out and the others stay.
    """
    changed, edits = dict(files), []
    for place in range(num_edits):
        rng = case_rng(key, number, place)
        name = rng.choice(sorted(files))
        if keep is None or place in keep:
            if rng.random() < 0.01:
                changed.pop(name, None)
            elif name in changed:
                changed[name] = edit_file(name, changed[name], rng)
            edits.append(f"{place}: {name}")
    return changed, edits
