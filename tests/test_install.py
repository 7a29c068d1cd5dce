"""The wheel as a user gets it: built, installed into an empty folder, used far from its source."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from first_hour import CHECKS
from page_programs import run_section, sections
from readme_commands import failures, run_all

ROOT = Path(__file__).parents[1]
TINY = (
    *("dataset.num_vertices=600", "dataset.num_edges=3000", "dataset.num_classes=4"),
    *("dataset.num_features=8", "model.hidden=8", "sampler.fanouts=[5,3]"),
    *("batch_size=64", "epochs=1", "num_threads=1", "optimizer.lr=0.01"),
)
Command = Callable[..., str]

# Building takes a minute or two, in which nothing else is to be expected from a test.
pytestmark = [pytest.mark.wheel, pytest.mark.timeout(900)]


def pip(*arguments: object) -> None:
    command = [sys.executable, "-m", "pip", *map(str, arguments), "--quiet", "--no-deps"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build and repair the wheel of this Python by the command that builds all of them."""
    if not (ROOT / "pyproject.toml").is_file():
        pytest.skip(f"{ROOT} is no source tree")
    out = tmp_path_factory.mktemp("wheel")
    version = ".".join(map(str, sys.version_info[:2]))
    command = [ROOT / "scripts" / "tools" / "build_wheels.py", "--only", version, "--out", out]
    answer = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    (file,) = out.glob("gnnscale-*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    pip("install", wheel, "--target", target)
    return target


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Command:
    """Run Python with the installed wheel before everything else, in an empty folder.

    Without the site module (-S), so that an editable install of the source tree is not found; what
    the wheel requires is named instead.
    """
    paths = [str(installed), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "GNNSCALE_HOME": str(tmp_path / "home"),
    }

    def command(*arguments: str) -> str:
        words = [sys.executable, "-S", *arguments]
        place = {"cwd": tmp_path, "env": environment}
        answer = subprocess.run(words, **place, timeout=240, capture_output=True, text=True)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    return command


def test_the_wheel_holds_what_the_source_tree_does(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
    package = {name for name in names if name.startswith("gnnscale/")}
    extension = {name for name in package if name.endswith(".so")}
    stems = {name.split("/")[-1].split(".")[0] for name in extension}
    assert stems == {"_native", "gnnscale_step_n2_m256"}
    # What other designs of the FPGA kernels are compiled from.
    patterns = ("*.cpp", "*.hpp", "*.tcl", "Makefile", "*.cfg", "README.md")
    files = [path for pattern in patterns for path in (ROOT / "fpga").rglob(pattern)]
    # What kernels for GPUs are compiled from.
    files += [path for path in (ROOT / "cuda").rglob("*") if path.is_file() and path.name[0] != "."]
    paths = (path.relative_to(ROOT) for path in files)
    kernels = {
        f"gnnscale/{each.as_posix()}" for each in paths if not {"test", "rtl"} & {*each.parts}
    }
    headers = ("random", "weighted_lists")
    kernels |= {f"gnnscale/cuda/native/gnnscale/{name}.hpp" for name in headers}
    sources = {
        path.relative_to(ROOT).as_posix()
        for suffix in ("*.py", "*.pyi", "*.yaml", "*.css", "*.js", "*.csv", "*.json", "py.typed")
        for path in (ROOT / "gnnscale").rglob(suffix)
    }
    assert package - extension - kernels == sources
    assert kernels <= package
    assert any(name.startswith("gnnscale/configs/experiment/") for name in sources)
    rest = {name.split("/")[0] for name in names} - {"gnnscale"}
    assert len(rest) == 1  # gnnscale-VERSION.dist-info
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_says_which_glibc_it_needs(wheel: Path) -> None:
    assert "manylinux_2_" in wheel.name
    assert f"cp{sys.version_info.major}{sys.version_info.minor}" in wheel.name


def test_a_missing_compiler_is_named_with_the_cure(tmp_path: Path) -> None:
    cmake = shutil.which("cmake", path=f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}")
    assert cmake is not None
    variables = {**os.environ, "CXX": str(tmp_path / "none")}
    command = [cmake, "-S", ROOT / "native", "-B", tmp_path / "build"]
    answer = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert answer.returncode != 0
    said = " ".join(answer.stderr.split())
    assert "gnnscale needs a C++20 compiler, and there is none: apt-get install g++" in said


def test_the_installed_package_is_the_one_that_runs(run: Command, installed: Path) -> None:
    script = (
        "import sys, gnnscale.ops as o; extension = sys.modules['gnnscale.ops._native']; "
        "print(o.__file__, extension.__file__, o.simd_level())"
    )
    module, extension, level = run("-c", script).split()
    assert Path(module).is_relative_to(installed)
    assert Path(extension).is_relative_to(installed)
    assert level in ("baseline", "v3", "v4")
    linked = subprocess.run(["ldd", extension], capture_output=True, text=True, check=True)
    assert "torch" not in linked.stdout


def test_the_command_line(run: Command, installed: Path) -> None:
    assert (installed / "bin" / "gnnscale").is_file()
    assert "train" in run("-m", "gnnscale", "--help")
    assert run("-m", "gnnscale", "--version").startswith("gnnscale ")
    assert "cora_gcn" in run("-m", "gnnscale", "train", "--help")
    assert "fanouts:" in run("-m", "gnnscale", "train", "--cfg", "job")


@pytest.fixture
def no_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave nothing on PATH, and so neither a compiler nor what would use the headers of Python."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def plain_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel and what it requires, without any extra; return where its programs are.

    pandas, which a notebook has, is there too. Nothing is on PATH meanwhile.
    """
    folder = tmp_path_factory.mktemp("plain")
    venv.create(folder, with_pip=True)
    constraints = ("-c", ROOT / "constraints.txt")
    pip_install = [folder / "bin" / "python", "-m", "pip", "install", "-q", *constraints]
    answer = subprocess.run(
        [*map(str, pip_install), str(wheel), "pandas"],
        env={**os.environ, "PATH": str(folder / "nothing")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return folder / "bin"


@pytest.mark.parametrize("section", CHECKS)
def test_a_section_of_the_first_hour_runs_without_extras(
    section: str, no_tools: None, plain_environment: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "GNNSCALE_HOME": str(tmp_path / "home")}
    text = sections("first-hour.md")[section]
    ended = run_section(text, tmp_path, environment, str(plain_environment / "python"))
    for line, answer in ended.items():
        assert answer.returncode == 0 or "no GPU here" in answer.stderr, f"{line}\n{answer.stderr}"
    CHECKS[section](tmp_path, ended)


def test_the_first_hour_has_no_other_section() -> None:
    assert [*sections("first-hour.md")] == [*CHECKS]


@pytest.mark.timeout(1800)
def test_every_command_of_the_readme_runs_without_extras(
    no_tools: None, plain_environment: Path, tmp_path: Path, test_data: Path
) -> None:
    ended = run_all(tmp_path, bin_folder=plain_environment, data=test_data)
    wrong = failures(ended, absent=("torch_geometric",))
    assert not wrong, "\n".join(f"{command}\n{text}" for command, text in wrong.items())


def test_training_an_epoch(run: Command, tmp_path: Path) -> None:
    directory = Path(run("-m", "gnnscale", "train", *TINY).splitlines()[-1])
    assert directory.is_relative_to(tmp_path)
    summary = json.loads((directory / "summary.json").read_text())
    assert summary["status"] == "completed"
    assert summary["test_metric"] > 0.25
