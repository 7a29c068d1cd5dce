"""The commands of README.md, run one after the other in one folder, as its reader would."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: A graph on which everything takes little time; commands that name another one keep it.
TINY = (
    *("dataset.num_vertices=600", "dataset.num_edges=3000", "dataset.num_classes=4"),
    *("dataset.num_features=8",),
)
#: Options of a command beside those that README.md gives it.
SHORT = ("epochs=1",)

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


def commands() -> Iterator[list[str]]:
    """Yield the words of each command of README.md: those of gnnscale and torchrun.

    Blocks come first, in their order, and then what stands in a sentence.
    """
    text = (ROOT / "README.md").read_text()
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        for line in block.splitlines() if not language else ():
            words = shlex.split(line, comments=True)
            if "&&" in words:
                words = words[len(words) - words[::-1].index("&&") :]
            if words and Path(words[0]).name in ("gnnscale", "torchrun"):
                yield [Path(words[0]).name, *words[1:]]
    for line in re.findall(r"(?<!`)`(gnnscale [a-z-]+ [^`]+)`(?!`)", text):
        yield shlex.split(line)


def program() -> str:
    """Return the Python program of README.md that writes a graph, of which commands then train."""
    text = (ROOT / "README.md").read_text()
    found = re.search(r"<!-- your-graph -->\n```python\n(.*?)```", text, re.S)
    assert found is not None
    return found[1]


def shortened(words: Sequence[str], *, data: Path, trained: Path | None) -> list[str]:
    """Return a command with places in place of README's words for them, and few epochs.

    Args:
        data: the folder of real graphs.
        trained: an earlier run, which ``resume=DIR`` and ``run=DIR`` mean.
    """
    found = [re.sub(r"^(resume|run)=DIR$", rf"\1={trained}", word) for word in words]
    if "config=musae_sage" in found:
        found.append(f"dataset.raw={data / 'musae_git' / 'git_web_ml.zip'}")
    command = found[1] if found[0] == "gnnscale" else "train"
    named = any(word.startswith(("dataset", "config", "resume")) for word in found[1:])
    if command in ("train", "partition", "plan-cache") and not named:
        found += TINY
    if command == "train" and not any(w.startswith(("epochs=", "resume=")) for w in found):
        found += SHORT
    return found


def run_all(
    folder: Path, *, bin_folder: Path, data: Path
) -> dict[str, subprocess.CompletedProcess[str]]:
    """Run every command with the programs of ``bin_folder``; return how each line of README ended.

    Their graph stores are in ``folder``.
    """
    variables = {
        **os.environ,
        "GNNSCALE_HOME": str(folder / "home"),
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }

    def run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(bin_folder / words[0]), *words[1:]],
            cwd=folder,
            env=variables,
            timeout=600,
            capture_output=True,
            text=True,
        )

    made = run(["python", "-c", program()])
    assert made.returncode == 0, made.stderr
    ended = {}
    trained = None
    for words in commands():
        result = run(shortened(words, data=data, trained=trained))
        ended[shlex.join(words)] = result
        if words[1:2] == ["train"] and result.returncode == 0:
            last = folder / result.stdout.splitlines()[-1]
            # No sweep, and no help.
            trained = last if (last / "checkpoints").is_dir() else trained
    return ended


def failures(
    ended: Mapping[str, subprocess.CompletedProcess[str]], *, absent: Sequence[str]
) -> dict[str, str]:
    """Return what is wrong with commands that ran without the packages ``absent``.

    A command that needs one of these, or a GPU, says so in its last line; every other one ends
    well.
    """
    wrong = {}
    for command, result in ended.items():
        last = (result.stderr.strip().splitlines() or [""])[-1]
        needs = any(name in last for name in absent) or "no GPU here" in last
        if "Traceback" in result.stderr:
            wrong[command] = result.stderr
        elif result.returncode != 0 and not needs:
            wrong[command] = result.stderr or f"exit status {result.returncode}"
    return wrong
