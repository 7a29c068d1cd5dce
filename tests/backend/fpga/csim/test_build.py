import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import gnnscale
from gnnscale.backend import jit
from gnnscale.backend.fpga.csim import build
from gnnscale.backend.fpga.csim.build import SimulatedDesign, library, sources
from gnnscale.backend.fpga.csim.library import Library
from gnnscale.core.errors import ConfigError

pytestmark = pytest.mark.integration

PROGRAM = Path(__file__).parents[1] / "programs" / "step.cpp"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources of a small kernel, a package without a library, and an empty home."""
    (tmp_path / "fpga" / "csim").mkdir(parents=True)
    shutil.copy(PROGRAM, tmp_path / "fpga" / "csim" / "library.cpp")
    (tmp_path / "gnnscale").mkdir()
    monkeypatch.setattr(gnnscale, "__path__", [str(tmp_path / "gnnscale")])
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CXX", "g++")
    # Not optimized, which takes a third less time.
    monkeypatch.setattr(build, "_OPTIONS", tuple(each for each in build._OPTIONS if each != "-O3"))
    return tmp_path


def test_a_design_is_compiled_once(tree: Path) -> None:
    sizes = {"n": 4, "m": 16, "compute_units": 1, "clock_hz": 10}
    with ThreadPoolExecutor(3) as threads:
        found, *others = threads.map(library, [SimulatedDesign(**sizes)] * 3)
    assert others == [found, found]
    assert found.parent == tree / "home" / "csim"
    assert Library(found).kernel == "gnnscale_step"
    assert sizes.items() <= Library(found).design.items()
    before = found.stat().st_mtime_ns
    assert library(SimulatedDesign(**sizes)) == found
    assert found.stat().st_mtime_ns == before
    assert os.listdir(found.parent) == [found.name]
    # n is a static variable of an inline function, of which GCC would make one for all designs.
    assert Library(library(SimulatedDesign(n=1))).design["n"] == 1
    assert Library(found).design["n"] == 4


@pytest.mark.parametrize("which", ["folder", "file"])
def test_what_others_may_have_written_is_not_loaded(tree, monkeypatch, which) -> None:
    monkeypatch.setattr(build, "_compile", lambda design, compiler, into: into.touch(0o755))
    before = os.umask(0o002)  # as many systems set it
    try:
        found = library(SimulatedDesign())
    finally:
        os.umask(before)
    odd = found if which == "file" else found.parent
    for mode in (0o775, 0o757):
        odd.chmod(mode)
        with pytest.raises(ConfigError) as error:
            library(SimulatedDesign())
        assert str(error.value) == (
            f"{odd}: not used, others may write to it (chmod go-w); compiled kernels are loaded "
            "only if nobody but you and root can have written them"
        )
    odd.chmod(0o755)
    assert library(SimulatedDesign()) == found
    monkeypatch.setattr(os, "getuid", lambda: 7)
    monkeypatch.setattr(Path, "stat", lambda _: os.stat_result((0o40755, 1, 1, 1, 8, *[0] * 5)))
    with pytest.raises(ConfigError, match=r"csim: not used, it belongs to user 8; compiled"):
        jit.check_ours(found.parent)


def test_whatever_changes_is_compiled_anew(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_compile", lambda design, compiler, into: into.touch())
    header = tree / "layer.hpp"
    header.write_text("inline float added() { return 1; }\n")
    own, of_header = SimulatedDesign(), SimulatedDesign(header=header)
    found = {library(each) for each in (own, SimulatedDesign(m=16), of_header)}
    header.write_text("inline float added() { return 2; }\n")
    found.add(library(of_header))
    (tree / "fpga" / "include").mkdir()
    (tree / "fpga" / "include" / "new.hpp").write_text("// more\n")
    found.add(library(own))
    assert len(found) == 5


def test_an_installed_library_is_taken_where_it_fits(tree, monkeypatch) -> None:
    # As CMake builds it, it knows its sources.
    monkeypatch.setenv("CXX", rf"g++ -DGNNSCALE_SOURCES=\"{build.digest_of_sources()}\"")
    prebuilt = tree / "gnnscale" / "csim" / "gnnscale_step_n2_m256.so"
    prebuilt.parent.mkdir()
    shutil.copy(library(SimulatedDesign()), prebuilt)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert library(SimulatedDesign()) == prebuilt
    for other in ({"clock_hz": 200_000_000}, {"header": PROGRAM}):
        with pytest.raises(ConfigError, match="CXX=no-such-compiler"):
            library(SimulatedDesign(**other))
    # One that cannot be used is as good as none, and so is one of other sources.
    monkeypatch.setenv("CXX", "g++")
    with (tree / "fpga" / "csim" / "library.cpp").open("a") as source:
        source.write("// changed\n")
    compiled = library(SimulatedDesign())
    assert compiled != prebuilt
    prebuilt.unlink()
    prebuilt.write_bytes(b"of another machine")
    assert library(SimulatedDesign()) == compiled


@pytest.mark.parametrize(
    ("compiler", "message"),
    [
        ("", r"looked for g\+\+, c\+\+, clang\+\+; the wheel has"),
        ("ccache g++", r"looked for CXX=ccache g\+\+"),
        ("/bin/false", "the compiler ended with status 1"),
    ],
)
def test_without_a_compiler_one_line_says_what_was_looked_for(
    tree: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, message: str
) -> None:
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setenv("PATH", str(tree))
    with pytest.raises(ConfigError, match=message):
        library(SimulatedDesign())


def test_a_compile_error_is_one_line_with_a_log(tree: Path) -> None:
    header = tree / "layer.hpp"
    header.write_text("#warning odd\ninline float added() { return unknown_name; }\n")
    with pytest.raises(ConfigError, match=r"layer\.hpp:2.*error: .*unknown_name") as caught:
        library(SimulatedDesign(header=header))
    assert "\n" not in str(caught.value)
    (log,) = (tree / "home" / "csim").iterdir()
    assert str(caught.value).endswith(f"the full output is in {log}")
    assert "#warning odd" in log.read_text()
    # What is mended is compiled.
    header.write_text("inline float added() { return 0; }\n")
    assert library(SimulatedDesign(header=header)).is_file()


def test_headers_and_sizes_that_no_kernel_has(tree: Path) -> None:
    odd = tree / 'a"b.hpp'
    odd.write_text("")
    for sizes, message in (
        ({"n": 3}, "n=3: expected one of 1, 2, 4, 8, 16"),
        ({"m": 8}, "m=8: expected one of 16, 32, .*, 2048"),
        ({"compute_units": 0}, "compute_units=0: must be at least 1"),
        ({"clock_hz": 0}, "clock_hz=0: must be at least 1"),
        ({"header": tree / "absent.hpp"}, r"header=.*absent\.hpp: no such file"),
        ({"header": odd}, "cannot include a path with such a name"),
    ):
        with pytest.raises(ConfigError, match=message):
            library(SimulatedDesign(**sizes))


def test_where_the_sources_are(tree: Path) -> None:
    # The checkout's are newer than what an editable installation has copied.
    installed = tree / "gnnscale" / "fpga"
    shutil.copytree(tree / "fpga", installed)
    assert sources() == tree / "fpga"
    shutil.rmtree(tree / "fpga")
    assert sources() == installed
    shutil.rmtree(installed)
    with pytest.raises(ConfigError, match="sources of the FPGA kernels are not installed"):
        build.sources()
