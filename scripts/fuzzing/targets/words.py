"""A grammar of command lines: commands, options and flags, and values that nobody expects."""

import random

from ..mutate import NUMBERS, words

TINY = words("""
    dataset.num_vertices=600 dataset.num_edges=3000 dataset.num_classes=4 dataset.num_features=8
    model.hidden=8 sampler.fanouts=[5,3] batch_size=64 epochs=1 num_threads=1
""")
_VALID = {
    **{"prepare": TINY[:4], "train": TINY, "doctor": ()},
    "partition": (*TINY[:4], "num_threads=1", "partitioner.num_parts=3"),
    "simulate": ("accelerators=[1,2]",),
    "evaluate": ("run=run", "num_threads=1"),
    "predict": ("run=run", "num_threads=1", "out=rows.npy", "force=true"),
    "export": ("run=run", "out=weights.safetensors", "force=true"),
}
_COMMANDS = words("prepare prepare train train export") * 2
_COMMANDS += words("partition train simulate evaluate predict") * 3 + words("train doctor")
#: Options of which large values are allowed and take long; they get wrong values alone.
_LONG = words("""
    epochs dataset.num_vertices dataset.num_edges dataset.num_features dataset.num_classes
    model.hidden model.num_layers
""")
_LONG_VALUES = ("-1", "0", "nan", "9" * 25, "x", "1.5", "", "[1]", "1e30", "null")
_OPTIONS = (
    *words("""
    seed batch_size num_threads resume config dataset model sampler force experiment run inference
    dataset.name dataset.seed dataset.train_fraction dataset.valid_fraction dataset.raw
    dataset.split dataset.split_seed dataset.exponent dataset.within dataset.signal
    dataset.self_loops dataset.feature_dtype dataset.memory_bytes dataset.undirected
    dataset._target_ dataset.nothing model._target_ model.dropout model.norm optimizer
    optimizer.lr optimizer.weight_decay optimizer.schedule optimizer.schedule_factor
    sampler.fanouts sampler.replace sampler.layer_sizes sampler.layer_dependency runtime.prefetch
    runtime.prefetch_depth runtime.compute_dtype runtime.eval_every runtime.patience
    runtime.clip_norm runtime.inference device_plan device_plan.devices device_plan.split
    partitioner partitioner.num_parts partitioner.store partitioner.seed partitioner._target_
    task task.decoder task.num_negatives task.valid_fraction task.hits loss loss.class_weights
    loss.label_smoothing loss.function metrics logger observers model.module model.arguments
    model.form optimizer.warmup_epochs runtime.accumulate runtime.checkpoint_every_s predictions
    vertices what layer format
    num_hops accelerators graph platform hybrid prefetch fused calibrate store hydra.job.name
    hydra.verbose hydra.output_subdir hydra.job.chdir hydra/job_logging hydra/launcher
    hydra.searchpath hydra.nothing hydra platform.name a.b.c _target_ 0 - epoch dataset. .dataset
    dataset..name
    """),
    *("", " ", "\u202e"),
)
#: Options whose value is a path that is written to.
_PATHS = ("output", "hydra.run.dir", "hydra.sweep.dir", "dataset.store", "partitioner.store", "out")
_PATH_VALUES = (
    *words("/proc/x /dev/full /dev/null/x /dev/null fifo file.txt file.txt/x null dir [1] {a:1}"),
    *words("'' ${nowhere} sub/dir ???"),
    *("", "x" * 300, "a/" * 3000, "a\nb", "a\x1b[31mb"),
)
_VALUES = (
    *words("""
    null [] {} [1,2 {a:1 [[1],[2]] {a:1} [null] [nan] '' " ' \\ = ${nowhere} ${oc.env:HOME} ${seed}
    ${hydra:run.dir} ${now:%Y} ${ ${x:${y}} ??? %s /proc/x /dev/full /dev/null fifo dir file.txt
    ../../esc nowhere/x ~ * . true false no abc 1e400 0x10 1_000 choice(1,2) range(1,3) glob(*)
    int(3) interval(0,1) shuffle(1,2) sort(a) tag(a,1) float(nan) float(x) str([1]) 1,2 ,
    !!python/name:os.system os.system [9223372036854775807,5] [-2] [0] [1000000000] [1.5] [true]
    ['1'] [5,3,1,1,1,1] cora planetoid gcn gat layerwise labor adam random p3 cpu_x2 emulated_x4
    my.yaml run pkg://x links custom balanced csv mlflow macro_f1 rmse os:system nowhere:X x.py:Y
    """),
    *("a b", "\x1b[31mred\x1b[0m", "a\nb", "a\r\nTraceback", "\t", "\u2603", "\udc80", "\u202e"),
    *("\x07", "{_target_:os.system,command:'touch executed'}", "x" * 100_000),
)
_FLAGS = words("""
    -m --multirun --cfg --cfg=job -c --help -h --hydra-help --version --resolve --run --info -i
    --info=all --config-path --config-name -cn --config-dir -cd --package -p --shell-completion -sc
    --calibrate --fast --epochs=3 -- - -x --experimental-rerun ---
    --experimental-rerun=run/config.pickle --cfg=x \u2014seed=1
""")
_WITH_VALUE = words("--cfg --config-name --config-path --config-dir --info --package")
_FLAG_VALUES = ("job", "all", "hydra", "dir", "my", "train", "x", "", "run", "a=b")
_NO_COMMANDS = ("", "trian", "\x1b[31m", "x" * 100_000, "-", "seed=1", "a\nb", "None")


def command_line(rng: random.Random) -> tuple[list[str], bool]:
    """Return the arguments of a command, and whether it is a valid one."""
    command = rng.choice(_COMMANDS)
    arguments = list(_VALID[command])
    if rng.random() < (0.02 if command == "train" else 0.06):
        return [command, *arguments], True
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _spoil(arguments, rng)
    if command == "train" and rng.random() < 0.4:
        arguments += ["--cfg", "job"]
    if rng.random() < 0.03:
        command = rng.choice(_NO_COMMANDS)
    return [command, *arguments], False


def _spoil(arguments: list[str], rng: random.Random) -> None:
    kind = rng.randrange(10)
    if kind == 0:
        arguments.insert(rng.randrange(len(arguments) + 1), rng.choice(_FLAGS))
    elif kind == 1:
        arguments += [rng.choice(_WITH_VALUE), rng.choice(_FLAG_VALUES)]
    elif kind == 2 and arguments:
        at, after = rng.randrange(len(arguments)), rng.choice(("", "=", "==1", ":=1", " = 1"))
        arguments[at] = arguments[at].partition("=")[0] + after
    elif kind == 3 and arguments:
        arguments.append(rng.choice(("~", "+", "++", "~~", "-", "@")) + rng.choice(arguments))
    elif kind == 4:
        arguments.append(rng.choice(("~", "+", "++", "")) + rng.choice(_OPTIONS))
    elif kind == 5:
        arguments.append(f"{rng.choice(_PATHS)}={rng.choice(_PATH_VALUES)}")
    elif kind == 6:
        arguments.append(f"{rng.choice(_LONG)}={rng.choice(_LONG_VALUES)}")
    else:
        prefix = rng.choice(("", "", "", "", "+", "++"))
        arguments.append(f"{prefix}{rng.choice(_OPTIONS)}={_value(rng)}")


def _value(rng: random.Random) -> str:
    if rng.random() < 0.4:
        return rng.choice(NUMBERS).replace("\x00", "")
    return "y" * 1_000_000 if rng.random() < 0.005 else rng.choice(_VALUES)
