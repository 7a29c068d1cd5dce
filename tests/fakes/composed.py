"""Compose the options of many runs: Hydra composes each choice of groups once.

It takes a tenth of a second for that, longer than most runs of the tests train.
"""

from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from importlib import resources

from hydra import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

_GROUPS = {each.name for each in resources.files("gnnscale.configs").iterdir() if each.is_dir()}


def composed(overrides: Sequence[str]) -> DictConfig:
    """Return what ``compose("train", overrides)`` does, where that is known to be right.

    Hydra has to be initialized with the package's configurations.
    """
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    choices = [each for each in parsed if each.key_or_group in _GROUPS]
    node = deepcopy(_of_groups(tuple(str(each.input_line) for each in choices)))
    for each in parsed:
        if each not in choices:
            OmegaConf.update(
                node, each.key_or_group, each.value(), merge=True, force_add=each.is_add()
            )
    return node


@cache
def _of_groups(choices: tuple[str, ...]) -> DictConfig:
    return compose("train", list(choices))
