import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnnscale.core.process import python_command
from gnnscale.training.launcher.worker_handles import WorkerServer

PACKAGE = Path(__file__).parents[2] / "gnnscale"
#: What starts a process, by the end of its name.
STARTS = (
    *("subprocess.run", "subprocess.Popen", "subprocess.call", "subprocess.check_call"),
    *("subprocess.check_output", "subprocess.getoutput", "os.system", "os.popen", "os.fork"),
    *("multiprocessing.get_context", "multiprocessing.Process", "multiprocessing.Pool"),
    *("ProcessPoolExecutor", "create_subprocess_exec", "create_subprocess_shell"),
)
PREFIXES = ("os.exec", "os.spawn", "os.posix_spawn")
#: How the last word of such a name begins; to look at these alone is faster.
WORDS = tuple(each.rpartition(".")[2] for each in (*STARTS, *PREFIXES, "sys.executable"))
#: How files do: Popen starts Python by ``python_command``, jit.py a compiler.
STARTERS = {
    "backend/jit.py": {"subprocess.run"},
    "partition/edge_cut/subprocess.py": {"subprocess.Popen"},
    "planner/calibration/contention.py": {"subprocess.Popen"},
    "training/launcher/fork_server.py": {"os.fork"},
    "training/launcher/worker_handles.py": {"subprocess.Popen"},
}


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "cwd"
    folder.mkdir()
    ran = tmp_path / "ran"
    for name in (*sys.stdlib_module_names, "gnnscale", "numpy", "torch"):
        (folder / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write(__name__ + '\\n')\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    yield ran
    assert not ran.exists(), ran.read_text()


def test_arguments_and_the_path_arrive(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend("/with\nodd\udcff ,'\"path")
    program = "import json; print(ascii(sys.argv[1:]), ascii(sys.path))"
    command = python_command(program, 3, "a b", "")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{['3', 'a b', '']!a} {sys.path!a}"


@pytest.mark.long
def test_workers(planted: Path, tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    server = WorkerServer(folder)
    try:
        worker = server.start_worker()
        assert worker.exit_code(timeout=0.0) is None
        worker.connection.close()
        assert worker.exit_code(timeout=60.0) is not None
    finally:
        server.stop()


@pytest.mark.long
def test_nothing_else_starts_a_process() -> None:
    starters: dict[str, set[str]] = {}
    pythons = set()
    for file in PACKAGE.rglob("*.py"):
        name, text = file.relative_to(PACKAGE).as_posix(), file.read_text()
        for node in ast.walk(ast.parse(text)):
            named = isinstance(node, ast.Attribute) and node.attr.startswith(WORDS)
            used = [ast.unparse(node)] if named else []
            if isinstance(node, ast.ImportFrom):
                used = [f"{node.module}.{each.name}" for each in node.names]
            starts = {each for each in used if each in STARTS or each.startswith(PREFIXES)}
            if starts:
                starters.setdefault(name, set()).update(starts)
                assert "python_command(" in text or starts != {"subprocess.Popen"}
            if used == ["sys.executable"]:
                pythons.add(name)
    assert starters == STARTERS
    assert pythons == {"core/process.py"}
