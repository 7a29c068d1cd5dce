"""Parts as Verilog, and what Verilator and a C++ compiler make of them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from amaranth.back import rtlil
from amaranth.lib import wiring

from rtl.floats import STAGES, verilog
from rtl.parts import NAMES, PES, part, shared
from rtl.quiet_yosys import passes

HERE = Path(__file__).parent
FPGA = HERE.parent
MEMORIES = HERE / "memory.v"
#: The module that Verilator compiles once, however many a part has of it; others are in line.
COMPILED_ONCE = "array_row"
#: Archives of each part's model.
Models = Mapping[str, Sequence[Path]]
_STREAM_PORT = re.compile(r"(\w)__(valid|ready|payload)\b")
_OPTIONS = ("-std=c++20", "-O1", "-fPIC", "-pthread", "-ffp-contract=off")
_VERILATOR = ("-O3", "--x-assign", "fast", "--x-initial", "fast", "-Wno-fatal", "-Wno-lint")


class ToolError(Exception):
    """A tool is missing, or has failed."""


def operators(folder: Path) -> list[Path]:
    """Return the files of the float32 operators in ``folder``; they are written once."""
    files = [folder / f"f32_{name}.v" for name in STAGES]
    for name, file in zip(STAGES, files, strict=True):
        if not file.exists():
            file.write_text(verilog(name))
    return files


def write_rtlil(name: str, component: wiring.Component, folder: Path) -> Path:
    """Write a part, or a module of it, for Yosys."""
    found = folder / f"{name}.il"
    found.write_text(rtlil.convert(component, name=name))
    return found


def write_verilog(name: str, component: wiring.Component, folder: Path) -> Path:
    """Write it as Verilog."""
    found = folder / f"{name}.v"
    reads = f"read_rtlil {write_rtlil(name, component, folder)}"
    passes((reads, "proc", "opt_clean", f"write_verilog -noattr -norename {found}"))
    # Verilator would spell two underscores out.
    text = _STREAM_PORT.sub(r"\1_\2", found.read_text())
    if name == COMPILED_ONCE:
        mark = "/* verilator hier_block */ endmodule"
        text = re.sub(r"^endmodule", mark, text, flags=re.MULTILINE)
    found.write_text(text)
    return found


def verilate(name: str, component: wiring.Component, folder: Path) -> list[Path]:
    """Return the archives of a part as a C++ class, V and its name."""
    into = folder / name
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    blocks = shared(component)
    modules = {name: component, **blocks}
    files = [write_verilog(module, each, into) for module, each in modules.items()]
    options = [*_VERILATOR, "--top-module", name, "--Mdir", str(into), "--prefix", f"V{name}"]
    rules, target = f"V{name}.mk", [f"V{name}__ALL.a"]
    if COMPILED_ONCE in blocks:
        options.append("--hierarchical")
        rules, target = f"V{name}_hier.mk", []
    run("verilator", "--cc", *options, *files, *operators(folder), MEMORIES)
    # One file for the compiler: Verilator's headers take longer than what is in most of many.
    compiler = ("OPT_FAST=-O1", "OPT_SLOW=-O0", "VM_PARALLEL_BUILDS=0", "CXX=g++ -fPIC")
    run("make", "-C", into, "-f", rules, *target, *compiler)
    return [into / f"V{name}__ALL.a", *sorted(into.glob("V*/lib*.a"))]


def models(m: int, folder: Path, *, known: Models | None = None) -> dict[str, Sequence[Path]]:
    """Return the archives of all parts, those of ``known`` as they are."""
    found: dict[str, Sequence[Path]] = dict(known or {})
    for name in NAMES:
        if name not in found:
            found[name] = verilate(name, part(name, m), folder)
    return found


def compile_cpp(
    into: Path, m: int, sources: Sequence[str], archives: Models, *options: str
) -> Path:
    """Compile C++ sources of ``fpga`` for a design, with the models of its parts."""
    sizes = (f"-DGNNSCALE_N={PES}", f"-DGNNSCALE_M={m}", "-DGNNSCALE_COMPUTE_UNITS=1")
    words = ["g++", *_OPTIONS, *options, *sizes, f"-I{FPGA / 'include'}", f"-I{FPGA}"]
    files: list[str | Path] = [FPGA / each for each in sources]
    if archives:
        words += [f"-I{each[0].parent}" for each in archives.values()]
        words += _verilator_includes()
        files += [each for archive in archives.values() for each in archive]
        files += _runtime(into.parent)
    run(*words, *files, "-o", into)
    return into


def _verilator_includes() -> list[str]:
    root = run("verilator", "--getenv", "VERILATOR_ROOT").strip()
    return ["-isystem", f"{root}/include", "-isystem", f"{root}/include/vltstd"]


def _runtime(folder: Path) -> list[Path]:
    """Compile what all models take of Verilator, if it is not in ``folder`` yet."""
    includes = _verilator_includes()
    objects = [folder / f"verilated{each}.o" for each in ("", "_dpi", "_threads")]
    for each in objects:
        source = Path(includes[1]) / f"{each.stem}.cpp"
        if not each.exists():
            run("g++", *_OPTIONS, *includes, "-c", source, "-o", each)
    return objects


def run(*command: str | Path) -> str:
    """Run a tool; return what it printed.

    Raises:
        ToolError: it is missing, or has failed.
    """
    words = [str(each) for each in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ToolError(f"{words[0]} is not installed") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it printed nothing"]
        first = next((line for line in said if "rror" in line), said[0])
        raise ToolError(f"{shlex.join(words[:3])} has failed: {first}")
    return done.stdout
