"""Edits of pickles, and pickles that would execute something if they were believed."""

from __future__ import annotations

import pickle
import pickletools
import random
import struct

from .mutate import BYTES, INTEGERS, Edit

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
    stacked = {
        f"{key} by stack": _text(module) + _text(name) + b"\x93"
        for key, (module, name) in names.items()
    }
    return globals_ | stacked


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


def replace_whole(data: bytes, rng: random.Random) -> bytes:
    """Return a hostile pickle in place of this one."""
    return HOSTILE[rng.choice(list(HOSTILE))]


def edit_opcodes(data: bytes, rng: random.Random) -> bytes:
    """Leave out, repeat, exchange or insert opcodes, or change an argument."""
    places = _opcodes(data)
    if len(places) < 3:
        return rng.choice(BYTES)(data, rng)
    at = rng.randrange(len(places) - 1)
    begin, end = places[at], places[at + 1]
    kind = rng.randrange(6)
    if kind == 0:
        return data[:begin] + data[end:]
    if kind == 1:
        return data[:end] + data[begin:end] + data[end:]
    if kind == 2:
        other = rng.randrange(len(places) - 1)
        return data[:begin] + data[places[other] : places[other + 1]] + data[end:]
    if kind == 3:
        hostile = HOSTILE[rng.choice(list(HOSTILE))]
        return data[:begin] + hostile[2:-1] + data[begin:]
    if kind == 4:
        return data[:begin] + bytes([rng.choice(_CODES)]) + data[begin:]
    return data[:begin] + _integer(rng) + data[end:]


def hostile_part(data: bytes, rng: random.Random) -> bytes:
    """Put a hostile pickle in front of the end."""
    return data[:-1] + HOSTILE[rng.choice(list(HOSTILE))]


_CODES = tuple(ord(opcode.code) for opcode in pickletools.opcodes)


def _integer(rng: random.Random) -> bytes:
    return pickle.dumps(rng.choice(INTEGERS), 2)[2:-1]


def _opcodes(data: bytes) -> list[int]:
    """Return where the first opcodes begin, as far as they can be read."""
    places: list[int] = []
    try:
        for _, _, place in pickletools.genops(data[:20_000]):
            if place is not None:
                places.append(place)
            if len(places) > 500:
                break
    except Exception:  # damaged already, or cut
        pass
    return places


PICKLE: tuple[Edit, ...] = (edit_opcodes,) * 8 + (replace_whole,) * 4 + (hostile_part,)
