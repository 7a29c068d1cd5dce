"""Odd command lines, and run directories and files of options that come from somebody else."""

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from ..case import OK, REFUSED, Files, Input, Keep, Outcome, case_rng, failure, line_fault
from ..formats import HOSTILE, edit_file
from .folders import files_of
from .hostile import hostile_yaml
from .words import TINY, command_line

#: One case in so many is a process of its own, as a user would start it.
_PROCESS = 60
#: Lines of progress, before the one that says why it ended.
PROGRESS = ("starting", "preparing ", "partitioning ", "epoch ", "resuming ", "[", "\t")
_OTHERS = ("pymp-", "torchinductor_")
_FILES = {"file.txt": b"text\n", "my.yaml": b"seed: 3\n"}
_INPUTS = ("run", "my.yaml", "dir", "file.txt", "fifo")


class Commands:
    """``gnnscale`` with arguments and files that make little sense."""

    name = "commands"
    batch = 1  # a command changes much of its process
    limit_s = 90.0
    uses_files = True

    def prepare(self) -> None:
        import hydra.main  # noqa: F401

        import gnnscale.cli
        import gnnscale.inference.evaluate
        import gnnscale.planner.simulator
        import gnnscale.report.partition
        import gnnscale.report.terminal
        import gnnscale.training.launcher.launch  # noqa: F401

        wanted = ("config.yaml", "metrics.jsonl", "checkpoints/", ".hydra/")
        with tempfile.TemporaryDirectory(prefix="gnnscale-fuzz-") as folder:
            command = [sys.executable, "-m", "gnnscale", "train", *TINY, "hydra.run.dir=run"]
            environment = {**os.environ, "GNNSCALE_HOME": f"{folder}/home"}
            subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
            kept = files_of(Path(folder, "run"))
            self._run = {f"run/{name}": kept[name] for name in kept if name.startswith(wanted)}
            self._home = files_of(Path(folder, "home"))

    def make(self, key: str, number: int, keep: Keep = None) -> Input:
        rng = case_rng(key, number)
        kind = "process" if rng.randrange(_PROCESS) == 0 else "fork"
        if rng.random() < 0.65:
            arguments, valid = command_line(rng)
            return Input(kind=kind, options={"argv": arguments, "valid": valid})
        files: dict[str, bytes] = {}
        arguments = _untrusted(files, self._run, rng)
        return Input(kind=kind, options={"argv": arguments, "valid": False}, files=files)

    def run(self, made: Input, folder: Path) -> Outcome:
        for name in ("cwd/dir", "home", "tmp"):
            (folder / name).mkdir(parents=True)
        files = {**_FILES, **self._run, **made.files}
        Input(kind="", files=files).write(folder / "cwd")
        os.mkfifo(folder / "cwd" / "fifo")
        Input(kind="", files=self._home).write(folder / "home")
        os.chdir(folder / "cwd")
        os.environ.update(GNNSCALE_HOME=str(folder / "home"), TMPDIR=str(folder / "tmp"))
        tempfile.tempdir = None
        errors = folder.parent / "output"
        os.dup2(os.open(folder / "stdout", os.O_WRONLY | os.O_CREAT), 1)
        try:
            status = _status(made)
        except BaseException as error:
            found = failure(error)
            return found._replace(message=f"{_shown(made)}\n{found.message}")
        sys.stdout.flush()
        sys.stderr.flush()
        text = errors.read_text(errors="replace")
        outcome = _judged(made, status, text, (folder / "stdout").read_text(errors="replace"))
        outcome = _left(folder, made, status) or outcome
        if outcome.is_finding:
            return outcome._replace(message=f"{_shown(made)}\n{outcome.message}\n{text[-1500:]}")
        return outcome


def _untrusted(files: dict[str, bytes], run: Files, rng: random.Random) -> list[str]:
    """Damage a file of somebody else's, and return the command that reads it."""
    template = run["run/config.yaml"]
    kind = rng.randrange(6)
    if kind <= 1:
        files["my.yaml"] = hostile_yaml(rng, rng.choice((b"", template)))
        return ["train", *TINY, "config=my.yaml", *rng.choice((("--cfg", "job"), ("seed=x",), ()))]
    if kind <= 3:
        files["run/config.yaml"] = hostile_yaml(rng, template)
        resumed = ["train", "resume=run", rng.choice(("seed=x", "epochs=2"))]
        return resumed if kind == 2 else ["evaluate", "run=run"]
    names = [name for name in run if name.startswith(("run/checkpoints/", "run/metrics"))]
    name = rng.choice(sorted(names))
    if rng.random() < 0.3:
        files[name] = HOSTILE[rng.choice(list(HOSTILE))]
        files["run/config.pickle"] = files[name]
        files[f"{name.rpartition('.')[0]}.pt"] = files[name]
    else:
        files[name] = edit_file(name, run[name], rng)
    rerun = ["train", "--experimental-rerun", "run/config.pickle"]
    return rng.choice((["evaluate", "run=run"],) * 6 + (["train", "resume=run", "epochs=2"], rerun))


def _status(made: Input) -> int:
    arguments = list(made.options["argv"])
    if made.kind == "process" and not any("\x00" in each for each in arguments):
        command = [sys.executable, "-m", "gnnscale", *arguments]
        try:
            return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
        except OSError:  # more than a system takes
            return 1
    from gnnscale.cli import main

    sys.argv = ["gnnscale", *arguments]
    try:
        return main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1


def _judged(made: Input, status: int, errors: str, output: str) -> Outcome:
    if "Traceback (most recent call last)" in errors:
        return Outcome("traceback", errors.strip().splitlines()[-1][:100])
    if "\x1b" in errors or "\x1b" in output:
        return Outcome("control characters", "escape sequence", "")
    if status == 0:
        return Outcome(OK)
    if made.options["valid"]:
        return Outcome("refused a valid command", made.options["argv"][0])
    if status not in (1, 2):
        return Outcome(f"status {status}", "")
    lines = [line for line in errors.splitlines() if not line.startswith(PROGRESS)]
    if {"-m", "--multirun"} & set(made.options["argv"]):  # one for each job
        lines = lines[:1]
    fault = line_fault("\n".join(lines))
    return Outcome(fault, (lines or [""])[0][:60]) if fault else Outcome(REFUSED)


def _left(folder: Path, made: Input, status: int) -> Outcome | None:
    if any((folder / place).exists() for place in ("executed", "cwd/executed", "home/executed")):
        return Outcome("executed", "code in the input ran")
    odd = {path.name for path in folder.iterdir()} - {"cwd", "home", "tmp", "stdout"}
    if odd:
        return Outcome("wrote outside", min(odd)[:40])
    # Of multiprocessing, which removes it at the end of a process, and of torch, which keeps it.
    left = [path.name for path in (folder / "tmp").iterdir() if not path.name.startswith(_OTHERS)]
    if left:
        return Outcome("left files", "in the temporary folder", str(left))
    if any(path.name.endswith((".partial", ".spool")) for path in (folder / "home").rglob("*")):
        return Outcome("left files", "half a store or partition")
    begun = list((folder / "cwd").rglob("summary.json"))
    new = [path.name for path in (folder / "cwd").iterdir() if path.name not in _INPUTS]
    if status and new and not begun and not made.options["valid"]:
        return Outcome("left files", f"{made.options['argv'][0][:20]} left {new[0][:40]}")
    return None


def _shown(made: Input) -> str:
    arguments, shown = made.options["argv"], ("my.yaml", "run/config.yaml")
    changed = {name: made.files[name] for name in shown if name in made.files}
    files = "".join(f"\n{name}: {content[:300]!r}" for name, content in changed.items())
    return f"gnnscale {' '.join(repr(each[:200]) for each in arguments)}{files}"
