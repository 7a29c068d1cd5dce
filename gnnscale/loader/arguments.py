"""Arguments of a neighbour loader: its own, and those of PyG's and DGL's that it is given."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from gnnscale.core.errors import ConfigError, nearest

__all__ = ["FIXED", "WITHOUT_EFFECT", "check_minimum", "check_options", "drawn_seed", "weights_of"]

#: Arguments of others with a single value that this loader can honour: PyG's, torch's, DGL's.
FIXED: dict[str, Any] = {
    "input_time": None,
    "subgraph_type": "directional",
    "disjoint": False,
    "directed": True,
    "temporal_strategy": "uniform",
    "time_attr": None,
    "transform_sampler_output": None,
    "custom_cls": None,
    "neighbor_sampler": None,
    "input_id": None,
    "sampler": None,
    "batch_sampler": None,
    "collate_fn": None,
    "worker_init_fn": None,
    "edge_dir": "in",
    "mask": None,
    "device": None,
    "output_device": None,
    "use_ddp": False,
    "use_uva": False,
    "gpu_cache": None,
}
#: Those that steer worker processes, copies and what is read ahead, and change no batch.
WITHOUT_EFFECT = (
    *("is_sorted", "filter_per_worker", "persistent_workers", "multiprocessing_context"),
    *("timeout", "in_order", "pin_memory_device", "fused", "ddp_seed", "use_prefetch_thread"),
    *("use_alternate_streams", "pin_prefetcher", "prefetch_node_feats", "prefetch_labels"),
    "prefetch_edge_feats",
)


def weights_of(weight_attr: str | None, others: dict[str, Any]) -> str | None:
    """Return the attribute of edges that neighbours are drawn by, and take ``prob`` from others.

    Raises:
        ConfigError: both names of the argument are given, or no name of an attribute.
    """
    prob = others.pop("prob", None)
    if prob is not None and weight_attr is not None:
        raise ConfigError(f"prob={prob!r}: allowed is None beside weight_attr={weight_attr!r}")
    given = {"weight_attr": weight_attr, "prob": prob}
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"{name}={value!r}: allowed is the name of an attribute of edges")
    return prob if weight_attr is None else weight_attr


def check_options(fanouts: list[int], others: dict[str, Any], loader: Callable[..., Any]) -> None:
    """Refuse fan-outs, and arguments that ``loader`` does not have, that cannot be honoured.

    Raises:
        ConfigError: one has a value that is not allowed, or there is no such argument.
    """
    if not fanouts or any(fanout == 0 or fanout < -1 for fanout in fanouts):
        raise ConfigError(
            f"num_neighbors={fanouts}: allowed is a positive number, or -1 for all, for each hop"
        )
    for name, value in others.items():
        if name in FIXED:
            allowed = FIXED[name]
            plain = getattr(value, "value", value)  # PyG has an enumeration of subgraph types
            if name in ("device", "output_device") and str(value) == "cpu":
                continue
            if plain is not allowed and (allowed is None or plain != allowed):
                raise ConfigError(f"{name}={value!r}: allowed is {allowed!r}")
        elif name not in WITHOUT_EFFECT:
            known = [*inspect.signature(loader).parameters, *FIXED, *WITHOUT_EFFECT]
            raise ConfigError(f"{name}={value!r}: there is no such argument{nearest(name, known)}")


def check_minimum(minimum: int, **values: int) -> None:
    """Refuse numbers below ``minimum``.

    Raises:
        ConfigError: one is.
    """
    for name, value in values.items():
        if value < minimum:
            raise ConfigError(f"{name}={value}: must be at least {minimum}")


def drawn_seed(seed: int | None, generator: torch.Generator | None) -> int:
    """Return the seed: the one given, or drawn from ``generator``, or 0.

    Raises:
        ConfigError: both are given.
    """
    if generator is None:
        return 0 if seed is None else seed
    if seed is not None:
        raise ConfigError(f"seed={seed}: allowed is None beside a generator, which draws it")
    return int(torch.randint(2**63 - 1, (), generator=generator).item())
