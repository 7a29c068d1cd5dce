"""Names of a run's options in the packaged files: no class of options is imported."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

import yaml  # type: ignore[import-untyped]

from gnnscale.core.config.compose import CONFIGS, config_groups
from gnnscale.core.errors import ConfigError, brief, suggestion

#: Names in PyTorch Geometric, DGL, Lightning, Keras and scikit-learn, by option.
_ELSEWHERE = {
    "epochs": "n_epochs num_epochs max_epochs max_iter n_iter",
    "batch_size": "bs minibatch_size",
    "seed": "random_state random_seed manual_seed",
    "num_threads": "n_jobs num_workers threads",
    "observers": "callbacks",
    "optimizer.lr": "learning_rate learning_rate_init",
    "optimizer.weight_decay": "wd l2 l2_regularization",
    "optimizer.schedule": "lr_schedule lr_scheduler scheduler",
    "optimizer.warmup_epochs": "warmup warmup_steps",
    "model.hidden": "hidden_channels hidden_dim hidden_size hidden_units hidden_features n_hidden",
    "model.num_layers": "n_layers layers depth",
    "model.num_heads": "heads n_heads",
    "model.aggregator": "aggr aggregator_type",
    "model.jumping": "jk",
    "model.dropout": "dropout_rate drop_rate feat_drop",
    "sampler.fanouts": "num_neighbors fanout n_neighbors sample_sizes",
    "device_plan": "device devices gpus accelerator",
    "experiment": "config",
    "loss": "criterion loss_fn loss_function",
    "loss.class_weights": "class_weight",
    "runtime.patience": "early_stopping early_stopping_rounds n_iter_no_change",
    "runtime.clip_norm": "gradient_clip_val max_grad_norm grad_clip clipnorm",
    "runtime.accumulate": "accumulate_grad_batches",
    "runtime.compute_dtype": "precision dtype amp",
    "progress": "verbose progress_bar",
    "directory": "output output_dir save_dir log_dir checkpoint_dir run_dir",
    "runtime.eval_every": "check_val_every_n_epoch validation_freq",
}
_OPTION_OF = {name: option for option, names in _ELSEWHERE.items() for name in names.split()}
#: Mapping whose keys are the user's own, so that it is one value.
_OF_USER = "model.arguments"


@cache
def packaged_options() -> Mapping[str, tuple[str, ...]]:
    """Return the dotted names of all options and groups of ``train``, with the choices of each."""
    content = packaged("train")
    groups = [
        name for entry in content.pop("defaults") if isinstance(entry, dict) for name in entry
    ]
    choices_of: dict[str, list[str]] = {name: [] for name in content if name != "hydra"}
    for group in groups:
        if group not in config_groups():
            continue
        choices_of[group] = []
        # The choices of these two set options of other groups.
        for choice in config_groups()[group] if group not in ("experiment", "algorithm") else ():
            for name, _ in all_entries(packaged(f"{group}/{choice}"), f"{group}."):
                if not name.endswith("._target_"):
                    choices_of.setdefault(name, []).append(choice)
    return {name: tuple(choices) for name, choices in choices_of.items()}


def packaged(name: str) -> Any:
    """Return the plain content of the packaged configuration ``configs/NAME.yaml``."""
    return yaml.safe_load((resources.files(CONFIGS) / f"{name}.yaml").read_text()) or {}


def all_entries(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name, after ``prefix``, and value of all entries in nested mappings."""
    for key, value in values.items():
        yield f"{prefix}{key}", value
        if isinstance(value, Mapping):
            yield from all_entries(value, f"{prefix}{key}.")


def options_called(name: str) -> list[str]:
    """Return options of ``train`` called ``name`` in full, or else by the last part, data last."""
    options = packaged_options()
    if name in options:
        return [name]
    same_named = [option for option in options if option.rpartition(".")[2] == name]
    return sorted(same_named, key=lambda option: option.startswith("dataset."))


def options_meant(name: str) -> list[str]:
    """Return ``options_called(name)``, or the option that other libraries call ``name``."""
    elsewhere = _OPTION_OF.get(name, "")
    return options_called(name) or ([elsewhere] if elsewhere in packaged_options() else [])


def unknown_option(name: str, options: Iterable[str]) -> str:
    """Return the message for an unknown option ``name``, with the closest of ``options``.

    The last part of a dotted name counts most: ``lr`` suggests ``optimizer.lr``. If other choices
    of its group have the option, the message names them, and how to choose one.
    """
    group, choices = name.partition(".")[0], packaged_options().get(name, ())
    if choices:
        *first, last = choices
        listed = f"{', '.join(first)} or {last}" if first else last
        return (
            f"{name}: unknown option, it belongs to {group}={listed}; a file chooses "
            f"one by defaults: [override /{group}: {choices[0]}]"
        )
    options = list(options)
    last = name.rpartition(".")[2]
    inside = [option for option in options if option.endswith(f".{name}")]
    elsewhere = _OPTION_OF.get(last, "")
    inside += [elsewhere] if elsewhere in options else []
    guess = f", did you mean {inside[0]!r}?" if inside else suggestion(name, options)
    if not guess:
        tails = {option.rpartition(".")[2]: option for option in options}
        close = difflib.get_close_matches(last, tails, n=1, cutoff=0.75)
        guess = f", did you mean {tails[close[0]]!r}?" if close else ""
    return f"{name}: unknown option{guess}"


def option_of_keyword(keyword: str, keywords: Mapping[str, str]) -> str:
    """Return the option of ``train`` that a Python keyword names by its last part.

    ``keywords`` are explicit ones with their options. ConfigError: none or several are called so.
    """
    options = options_called(keyword)
    if len(options) == 1:
        return options[0]
    if options:
        written = " or ".join(f"options={{{option!r}: ...}}" for option in options)
        raise ConfigError(f"{brief(keyword)}: several options are called so, write {written}")
    meant = _OPTION_OF.get(keyword)
    explicit = {option: name for name, option in keywords.items()}
    of_runs = (option for option in packaged_options() if not option.startswith("dataset."))
    names = {option.rpartition(".")[2] for option in of_runs}
    guess = (
        suggestion(keyword, {*names, *keywords})
        if meant is None
        else f", did you mean {explicit.get(meant, meant.rpartition('.')[2])!r}?"
    )
    raise ConfigError(f"{brief(keyword)}: unknown option{guess}")


def flat_options(options: Any, *, prefix: str = "") -> dict[str, Any]:
    """Return options in mappings of any depth by dotted names; ConfigError: one is given twice."""
    if not isinstance(options, Mapping):
        raise ConfigError(
            f"options={brief(options)}: expected a mapping, such as {{'optimizer.lr': 0.1}}"
        )
    flat: dict[str, Any] = {}
    for key, value in options.items():
        if not isinstance(key, str) or not key:
            raise ConfigError(f"options: {prefix}{brief(key)}: expected the name of an option")
        name = f"{prefix}{key}"
        # An empty mapping is no option, but an unknown name is told.
        nested = (
            isinstance(value, Mapping) and name != _OF_USER and (value or name in config_groups())
        )
        inner = flat_options(value, prefix=f"{name}.") if nested else {name: value}
        for option, part in inner.items():
            if option in flat:
                raise ConfigError(f"options: {brief(option)}: expected once, got it twice")
            flat[option] = part
    return flat
