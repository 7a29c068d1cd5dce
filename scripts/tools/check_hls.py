"""Check the FPGA kernels by rules of Vitis HLS that no compiler on this machine has.

    python scripts/tools/check_hls.py                  # fpga/kernels and its headers
    python scripts/tools/check_hls.py FILE [FOLDER]    # another file, with the folder that it is in

The kernels are parsed as synthesis would see them (`__VITIS_HLS__`), with stand-ins for the headers
of Vitis. Each finding is a line `FILE:LINE: RULE: what`. The rules follow UG1399 and UG1448; a
kernel without findings may still be refused by Vitis HLS.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from clang.cindex import Cursor, CursorKind, Index, TranslationUnit, Type, TypeKind

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "fpga" / "kernels"
_LOOPS = (CursorKind.FOR_STMT, CursorKind.WHILE_STMT, CursorKind.DO_STMT)
_FUNCTIONS = (CursorKind.FUNCTION_DECL, CursorKind.FUNCTION_TEMPLATE, CursorKind.CXX_METHOD)
_BRANCHES = (CursorKind.IF_STMT, CursorKind.CONDITIONAL_OPERATOR)


@dataclass(frozen=True, order=True)
class Finding:
    """A place that breaks a rule."""

    file: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.text}"


@cache
def text_of(file: str) -> bytes:
    return Path(file).read_bytes()


def source(cursor: Cursor) -> str:
    """Return what is written there."""
    begin, end = cursor.extent.start, cursor.extent.end
    return text_of(begin.file.name)[begin.offset : end.offset].decode() if begin.file else ""


def before(cursor: Cursor) -> str:
    begin = cursor.extent.start
    return text_of(begin.file.name)[max(0, begin.offset - 120) : begin.offset].decode()


def body_of(loop: Cursor) -> str:
    """Return a loop's body without its brace."""
    return source(list(loop.get_children())[-1]).removeprefix("{").lstrip()


def pragmas_of(loop: Cursor) -> str:
    """Return the lines of pragmas that a body begins with."""
    lines = body_of(loop).splitlines()
    count = next((i for i, line in enumerate(lines) if not line.startswith("#pragma")), len(lines))
    return "\n".join(lines[:count])


def pipelined(loop: Cursor) -> str:
    """Return the name that PIPELINED has in a loop, or nothing."""
    found = re.match(r"PIPELINED\((\w+),", body_of(loop))
    return found[1] if found else ""


def walk(cursor: Cursor, kinds: Sequence[CursorKind]) -> Iterator[Cursor]:
    for each in cursor.walk_preorder():
        if each.kind in kinds:
            yield each


def functions(unit: TranslationUnit, folders: Sequence[Path]) -> Iterator[Cursor]:
    """Return the definitions in files of the folders."""
    for each in walk(unit.cursor, _FUNCTIONS):
        if each.location.file and each.is_definition():
            path = Path(each.location.file.name).resolve()
            if any(path.is_relative_to(folder) for folder in folders):
                yield each


Found = Iterator[tuple[Cursor, str]]


def check_loops(function: Cursor) -> Found:
    """A loop is pipelined with interval and depth, unrolled, or has a name and no pipeline in it.

    UG1399: a pipeline inside of another loop fills and drains each time.
    """
    for loop in walk(function, _LOOPS):
        if "HLS unroll" in pragmas_of(loop):
            continue
        name = pipelined(loop)
        inner = [each for each in walk(loop, _LOOPS) if each != loop]
        if name:
            if not re.search(rf"LOOP\({name}\)\s*$", before(loop)):
                yield loop, f"PIPELINED({name}, ...) without LOOP({name}) before the loop"
            for each in inner:
                if "HLS unroll" not in pragmas_of(each):
                    yield each, f"a loop inside of the pipelined loop {name} that is not unrolled"
        elif not re.search(r"\w+:\s*$", before(loop)):
            yield loop, "a loop that is neither pipelined nor unrolled, and has no name"
        elif any(pipelined(each) for each in inner):
            yield loop, "a pipelined loop inside of this one is entered again and again"
        if "HLS pipeline" in body_of(loop).split("{")[0]:
            yield loop, "a pragma in place of PIPELINED, which C simulation does not charge"


def check_pointers(function: Cursor) -> Found:
    """Each pointer is an argument: no pointers in structures, nor to pointers."""
    for each in function.get_arguments() or ():
        held = each.type.get_pointee() if each.type.kind != TypeKind.RECORD else each.type
        if held.kind == TypeKind.POINTER or _holds_pointer(held):
            yield each, f"{each.spelling} is, or holds, a pointer to a pointer"
    for each in walk(function, (CursorKind.CXX_NULL_PTR_LITERAL_EXPR,)):
        yield each, "nullptr: an index says what is there"
    for each in walk(function, (CursorKind.UNARY_OPERATOR,)):
        if source(each).startswith("&"):
            yield each, f"{source(each)} takes an address: pass an index"


def _holds_pointer(held: Type) -> bool:
    if held.get_declaration().kind == CursorKind.NO_DECL_FOUND:
        return False
    return any(each.type.kind == TypeKind.POINTER for each in held.get_fields())


def check_static(function: Cursor) -> Found:
    """No static variable: a process of a dataflow region would share it."""
    for each in walk(function, (CursorKind.VAR_DECL,)):
        if re.match(r"static\b", source(each)):
            yield each, f"{each.spelling} is static"


def has_region(function: Cursor) -> bool:
    return re.match(r"[^{]*\{\s*#pragma HLS dataflow", source(function)) is not None


def check_region(function: Cursor) -> Found:
    """A dataflow region has calls, unrolled loops with dataflow inside, and each port once."""
    if not has_region(function):
        return
    for loop in walk(function, _LOOPS):
        if "HLS unroll" not in pragmas_of(loop) or "HLS dataflow" not in pragmas_of(loop):
            yield loop, "a loop of processes needs unroll and dataflow"
    body = source(function)
    for each in function.get_arguments() or ():
        if each.type.spelling.endswith("Port"):
            used = len(re.findall(rf"\b{each.spelling}\b", body.split("{", 1)[1]))
            if used > 1:
                yield each, f"port {each.spelling} has {used} processes"


def check_dependences(function: Cursor) -> Found:
    """A dependence pragma has its reason beside it."""
    lines = source(function).splitlines()
    for number, line in enumerate(lines):
        reason = "//" in line or (number > 0 and lines[number - 1].lstrip().startswith("//"))
        above = [each for each in lines[max(0, number - 3) : number] if "HLS dependence" in each]
        if "HLS dependence" in line and not reason and not above:
            yield function, f"{line.strip()}: without a reason"


#: The branches that lead to a place: of which statement, and which of its parts.
Branches = list[tuple[int, int]]
_OTHER = 99  # not the part of an `if` that continues with the next iteration


def path_of(ancestors: Sequence[tuple[Cursor, int]]) -> Branches:
    return [(each.hash, part) for each, part in ancestors if each.kind in _BRANCHES and part > 0]


def ends_iteration(statement: Cursor) -> bool:
    """Return whether a statement is an `if` whose only part ends the iteration."""
    parts = list(statement.get_children())
    return (
        statement.kind == CursorKind.IF_STMT
        and len(parts) == 2
        and re.search(r"\b(continue|return);?\s*}?$", source(parts[1])) is not None
    )


def accesses(loop: Cursor) -> Iterator[tuple[str, Cursor, Branches]]:
    """Return reads and writes of streams and ports in a loop, with the branches of each."""

    def visit(
        cursor: Cursor, ancestors: list[tuple[Cursor, int]]
    ) -> Iterator[tuple[str, Cursor, Branches]]:
        found = re.fullmatch(r"([\w\[\]. +%()]+)\.(read|write)\(.*\)", source(cursor), re.DOTALL)
        if cursor.kind == CursorKind.CALL_EXPR and found:
            yield f"{found[1]}.{found[2]}", cursor, path_of(ancestors)
        gone: list[tuple[Cursor, int]] = []  # branches that ended the iteration before
        for part, child in enumerate(cursor.get_children()):
            yield from visit(child, [*ancestors, *gone, (cursor, part)])
            if cursor.kind == CursorKind.COMPOUND_STMT and ends_iteration(child):
                gone.append((child, _OTHER))

    yield from visit(loop, [])


def excludes(one: Branches, other: Branches) -> bool:
    """Return whether no iteration comes to both places."""
    chosen = dict(one)
    return any(chosen.get(branch, part) != part for branch, part in other)


def check_streams(function: Cursor) -> Found:
    """An iteration reads a stream once and writes it once: a FIFO has one port on each side."""
    for loop in walk(function, _LOOPS):
        if not pipelined(loop):
            continue
        seen: list[tuple[str, Branches]] = []
        for name, cursor, path in accesses(loop):
            if any(name == other and not excludes(path, there) for other, there in seen):
                yield cursor, f"{name} more than once in an iteration of {pipelined(loop)}"
            seen.append((name, path))


def check_operators(function: Cursor) -> Found:
    """Latencies of operators are the constants of operators.hpp, which C simulation charges."""
    for line in source(function).splitlines():
        found = re.search(r"HLS bind_op .*latency = (\S+)", line)
        if "HLS bind_op" in line and (not found or not re.match(r"k[A-Z]", found[1])):
            yield function, f"{line.strip()}: the latency is no constant of operators.hpp"


def check_divisions(function: Cursor) -> Found:
    """No division by a size that is known at run time in a pipeline; ``bind_op`` divides floats."""
    for part in [function] if function.kind == CursorKind.CXX_METHOD else walk(function, _LOOPS):
        if part.kind in _LOOPS and not pipelined(part):
            continue
        lines = [line.split("//")[0] for line in source(part).splitlines()]
        for line, following in pairwise([*lines, ""]):
            found = re.search(r"[/%] (?!k[A-Z])(?!D::k)([a-z][\w.\[\]]*)", line)
            if found and "op = fdiv" not in following:
                yield part, f"a division by {found[1]}"


def check_partitions(function: Cursor) -> Found:
    """An array that outlives an iteration is partitioned if unrolled iterations each use a part."""
    body = source(function)
    in_loops = {each.hash for loop in walk(function, _LOOPS) for each in walk(loop, _VARIABLES)}
    for array in walk(function, _VARIABLES):
        kind = array.type.get_canonical()
        if kind.kind != TypeKind.CONSTANTARRAY or array.hash in in_loops or _is_stream(array):
            continue
        if re.search(rf"HLS array_partition variable = {array.spelling}\b", body):
            continue
        for loop in walk(function, (CursorKind.FOR_STMT,)):
            counter = re.match(r"for \(int (\w+) =", source(loop))
            if counter is None or "HLS unroll" not in pragmas_of(loop):
                continue
            used = rf"\b{array.spelling}(\[[^\]]*\])*\[[^\]]*\b{counter[1]}\b"
            if re.search(used, body_of(loop)):
                yield array, f"{array.spelling} has two ports for all iterations of {counter[1]}"
                break


def check_fifos(function: Cursor) -> Found:
    """A stream has a depth and a storage that it names, which STREAM and its relatives ask for."""
    for each in walk(function, _VARIABLES):
        line = text_of(each.location.file.name).splitlines()[each.location.line - 1]
        if _is_stream(each) and not line.lstrip().startswith(b"STREAM"):
            yield each, f"{each.spelling} has no depth and no storage: STREAM gives it both"


_VARIABLES = (CursorKind.VAR_DECL,)


def _is_stream(variable: Cursor) -> bool:
    return "hls::stream<" in variable.type.get_canonical().spelling


RULES: dict[str, Callable[[Cursor], Found]] = {
    "loops": check_loops,
    "pointers": check_pointers,
    "static": check_static,
    "region": check_region,
    "dependences": check_dependences,
    "streams": check_streams,
    "operators": check_operators,
    "divisions": check_divisions,
    "partitions": check_partitions,
    "fifos": check_fifos,
}


def check_call_sites(found: Sequence[Cursor]) -> Iterator[Finding]:
    """A region, and an array's process, is called in one place: each call is another copy of it."""
    names = {each.spelling for each in found if has_region(each)} | {"multiply"}
    texts = {each.hash: source(each) for each in found}
    for name in sorted(names):
        calls = [
            (each, match)
            for each in found
            for match in re.finditer(rf"\b{name}<|\b{name}\(", texts[each.hash].split("{", 1)[-1])
        ]
        for each, _ in calls[1:]:
            place = each.location
            yield Finding(place.file.name, place.line, "call sites", f"{name} is called again")


def include_folders() -> list[str]:
    """Return this machine's folders of headers; libclang brings no headers."""
    command, english = ["g++", "-E", "-x", "c++", "-", "-v"], {**os.environ, "LC_ALL": "C"}
    how: Any = {"input": "", "capture_output": True, "text": True, "check": True}
    printed = subprocess.run(command, env=english, **how).stderr
    listed = printed.split("#include <...> search starts here:")[1].split("End of search list")[0]
    return [each.strip() for each in listed.splitlines() if each.strip()]


def parse(file: Path) -> TranslationUnit:
    """Return a file as synthesis sees it, if it compiles."""
    folders = [ROOT / "fpga" / each for each in ("include", "", "test/vitis")]
    options = ["-x", "c++", "-std=c++17", "-D__VITIS_HLS__", *(f"-I{each}" for each in folders)]
    options += [f"-isystem{each}" for each in include_folders()]
    unit = Index.create().parse(str(file), options)
    errors = [each for each in unit.diagnostics if each.severity >= 3]
    if errors:
        raise SystemExit(f"{file}: {errors[0].location.line}: {errors[0].spelling}")
    return unit


def findings(file: Path, folders: Sequence[Path]) -> list[Finding]:
    """Return what breaks a rule, in the order of files and lines."""
    found = list(functions(parse(file), [each.resolve() for each in folders]))
    broken = set(check_call_sites(found))
    for function in found:
        for rule, check in RULES.items():
            for cursor, text in check(function):
                place = cursor.extent.start
                broken.add(Finding(place.file.name, place.line, rule, text))
    return sorted(broken)


def main(arguments: Sequence[str]) -> int:
    if arguments:
        file, *rest = map(Path, arguments)
        found = findings(file, rest or [file.parent])
    else:
        found = findings(KERNELS / "step.cpp", [KERNELS, ROOT / "fpga" / "include"])
    for each in found:
        print(each)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
