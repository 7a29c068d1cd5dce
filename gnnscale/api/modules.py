"""A module of a program's own as the model of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from gnnscale.api.options import Choice, choose
from gnnscale.model import ModelConfig
from gnnscale.model.options import CustomModel
from gnnscale.options.user_code import name_of_code

__all__ = ["own_module"]


def own_module(
    module: type[Any] | torch.nn.Module, arguments: Mapping[str, Any], options: Mapping[str, Any]
) -> Choice[ModelConfig]:
    """Choose ``module`` as ``model=custom model.module=...`` does on the command line.

    Args:
        module: a class of ``torch.nn.Module``, or a module that is built.
        arguments: of the class's constructor, by name.
        options: others of ``model=custom``, by their dotted names.

    Raises:
        ConfigError: there is no such option, or a value is not allowed.
    """
    own = {name.removeprefix("model."): value for name, value in options.items()}
    own |= {"module": name_of_code(module), "arguments": dict(arguments)}
    chosen = choose("model", "custom", ModelConfig, own)
    config = chosen.config
    assert isinstance(config, CustomModel)
    return replace(chosen, config=replace(config, module=module))
