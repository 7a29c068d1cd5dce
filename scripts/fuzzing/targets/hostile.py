"""Configuration files with code, or the beginning of it, in every place that YAML offers."""

import random
from itertools import pairwise

from ..formats import COMMAND
from ..mutate import NUMBERS, TEXT, words


def _lines(text: str) -> tuple[str, ...]:
    """Return lines of YAML, of which some stand beside each other."""
    return tuple(line.strip() for line in text.replace("\n", ";;").split(";;") if line.strip())


_CALL = f"{{_target_: os.system, command: {COMMAND}}}"
_COPY = "{_target_: shutil.copy, src: my.yaml, dst: executed}"
_TAGS = (
    f"!!python/object/apply:os.system ['{COMMAND}']",
    f"!!python/object/new:os.system ['{COMMAND}']",
    *_lines("""
    !!python/object/apply:subprocess.call {args: [touch, executed]} ;; !!python/object:os.Pipe {}
    !!python/tuple [1] ;; !<tag:yaml.org,2002:python/name:os.system> '' ;; !unknown x
    !!binary aGVsbG8= ;; !!set {a, b} ;; !!int x ;; !!float 1e999 ;; {_target_: gnnscale.cli.main}
    {_target_: torch.load, f: x} ;; [[1], [2, [3]]] ;; {a: {b: {c: 1}}}
    """),
    *words("""
    !!python/name:os.system !!python/module:os 2001-01-01 .nan .inf 0o17 1:30 ~ << *nowhere
    ${oc.env:PATH} ${oc.decode:'[1]'} ${seed ${seed} ${hydra:run.dir} ${now:%Y} ${nowhere}
    ${oc.create:{a:1}} ${usable_cores:} ${x:${x:${x:1}}} ${oc.select:hydra,1}
    """),
    *(_CALL, _COPY, "'\\e[31m'", '"\\0"', "'" + "x" * 70_000 + "'", "[" * 2000 + "]" * 2000),
)
_HYDRA = (
    *(f"callbacks: {{x: {_CALL}}}", f"callbacks: {{x: {_COPY}}}"),
    *(f"launcher: {_CALL}", f"sweeper: {_COPY}"),
    f"job_logging: {{version: 1, handlers: {{x: {{(): os.system, command: {COMMAND}}}}}}}",
    f"hydra_logging: {{version: 1, formatters: {{x: {{(): os.system, command: {COMMAND}}}}}}}",
    *_lines("""
    job_logging: {version: 1, handlers: {x: {class: logging.FileHandler, filename: executed}}}
    run: {dir: ../../esc} ;; sweep: {dir: ../../esc} ;; searchpath: [file://dir] ;; help: 3
    output_subdir: ../x ;; job: {chdir: true} ;; job: {env_set: {PATH: x}} ;; mode: MULTIRUN
    verbose: true
    """),
)
_DEFAULTS = _lines("""
    override /hydra/launcher: nothing ;; /hydra/job_logging: none ;; ../../../etc/passwd
    my ;; file_my ;; optional nowhere: x
""")
_TENFOLD = [f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in pairwise("abcdefgh")]
_WHOLE = (
    "\n",
    *_lines("""
    7 ;; just words ;; null ;; {} ;; &a [*a] ;; a: &a {b: *a} ;; 1: 2 ;; true: x ;; defaults: 3
    defaults: [a: b: c] ;; 'a.b': 1
    """),
    *("- a\n- b\n", "---\na: 1\n---\nb: 2\n", "a: 1\na: 2\n", "? [a, b]\n: c\n", "a:\n\tb: 1\n"),
    *("\ufeffseed: 1\n", "seed: 1\x00\n", "# @package hydra\nrun: {dir: executed}\n"),
    *("# @package hydra.callbacks\nx: " + _COPY, "\x1b[31m: 1\n", ""),
    *(f"defaults:\n  - {each}\n" for each in _DEFAULTS),
    "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(_TENFOLD),
    *(f"{head}{line}\n" for line in _HYDRA for head in ("hydra:\n  ", "", "# @package hydra\n")),
)
_KEYS = words("seed epochs model dataset sampler runtime optimizer resume run platform")
_FIELDS = words("hidden name raw store fanouts lr _target_ _args_ devices _partial_")
_TARGETS = (
    *words("os.system shutil.copy gnnscale.nn.GCN gnnscale.cli.main gnnscale.ops.empty os 3"),
    *words("gnnscale.graph.Graph gnnscale.data.base.Dataset gnnscale..x gnnscale.ops.np.load"),
    *words("gnnscale.core.config.typed.importlib.import_module gnnscale.__main__.main"),
    *("gnnscale.data.Planetoid", "os:system", "x.py:Y", ""),
)


def hostile_yaml(rng: random.Random, template: bytes) -> bytes:
    """Return a file of code, of odd values, or ``template`` with either in it."""
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(_WHOLE).encode()
    if kind == 1:
        return f"{rng.choice(_KEYS)}: {rng.choice(_TAGS)}\n".encode()
    if kind == 2:
        value = rng.choice((*_TAGS, *NUMBERS, *_TARGETS))
        return f"{rng.choice(_KEYS)}:\n  {rng.choice(_FIELDS)}: {value}\n".encode()
    if kind == 3:
        return template + rng.choice(_WHOLE).encode()
    if kind == 4:
        lines = template.decode(errors="replace").splitlines() or [""]
        at = rng.randrange(len(lines))
        values = _TARGETS if "_target_" in lines[at] else (*_TAGS, *NUMBERS)
        lines[at] = f"{lines[at].partition(':')[0]}: {rng.choice(values)}"
        return ("\n".join(lines) + "\n").encode()
    return rng.choice(TEXT)(template, rng)
