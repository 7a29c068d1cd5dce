"""Rules of time: which edges sampling may reach as of a cut-off."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from gnnscale.core import ConfigError, Int64Array, brief, check_choice
from gnnscale.graph import NO_TIME

#: Bound of a source reached over an edge: its seed's cut-off, the edge's time, or a walk in time.
Rule = Literal["seed", "destination", "walk"]
Bound = Literal["inclusive", "strict"]
Direction = Literal["backward", "forward"]
Strategy = Literal["uniform", "last"]


@dataclass(frozen=True, kw_only=True)
class TimeRule:
    """Rule of the edges that sampling may reach: of time t, as of the cut-off c of a destination.

    Edges have t <= c if the bound is inclusive, t < c if it is strict. With a window w they also
    have t > c - w, or t >= c - w if the bound is strict: an interval of length w. Lists without
    times have no bounds.

    Attributes:
        rule: cut-off of a source. ``seed``: its destination's, hence that of the seed.
            ``destination``: the time of the edge. ``walk``: times along the walk from a seed do
            not ascend (``backward``: the cut-off is the time of the edge), or do not descend
            (``forward``: the cut-off is the seed's, and times are those of the edge before or
            later); strictly so if the bound is strict.
        bound: whether the time of the cut-off itself is allowed. None: ``strict`` for
            ``destination``, else ``inclusive``.
        direction: direction of ``walk``.
        window: length of the allowed interval in the graph's unit of time, at least 1. None: all
            of the past.
        strategy: ``uniform`` draws among the allowed edges; ``last`` takes the newest.
    """

    rule: Rule = "seed"
    bound: Bound | None = None
    direction: Direction = "backward"
    window: int | None = None
    strategy: Strategy = "uniform"

    def __post_init__(self) -> None:
        check_choice("sampler.time", self.rule, get_args(Rule))
        check_choice("sampler.bound", self.bound or "strict", get_args(Bound))
        check_choice("sampler.direction", self.direction, get_args(Direction))
        check_choice("sampler.strategy", self.strategy, get_args(Strategy))
        if self.direction == "forward" and self.rule != "walk":
            raise ConfigError(
                f"sampler.direction=forward: expected sampler.time=walk, got {self.rule}"
            )
        check_window(self.window)

    @property
    def is_strict(self) -> bool:
        """Whether edges of the time of the cut-off are left out."""
        return (self.bound or ("strict" if self.rule == "destination" else "inclusive")) == "strict"

    def intervals(self, cutoffs: Int64Array) -> Int64Array | None:
        """Return the lowest and highest allowed time ``[2, n]`` as of ``cutoffs`` ``[n]``.

        None: the lowest is the time of the edge by which a vertex is reached.
        """
        if self.direction == "forward":
            return None
        intervals = np.empty((2, len(cutoffs)), np.int64)
        intervals[1] = cutoffs - int(self.is_strict)
        intervals[0] = NO_TIME
        if self.window is not None:
            # Saturated: a difference below the least int64 is the least.
            least = NO_TIME + self.window
            lowest = np.maximum(cutoffs, least) - self.window
            intervals[0] = lowest + int(not self.is_strict)
        return intervals

    @property
    def native(self) -> dict[str, Any]:
        """Arguments of ``NativeSampler.sample_typed``."""
        return {
            "rule": self.rule,
            "forward": self.direction == "forward",
            "strict": self.is_strict,
            "window": self.window,
            "last": self.strategy == "last",
        }


def check_window(window: Any) -> None:
    """Raise ConfigError unless ``window`` is None, or a whole number of at least 1."""
    if window is None:
        return
    is_whole = isinstance(window, int) and not isinstance(window, bool)
    if not is_whole or not 1 <= window <= np.iinfo(np.int64).max:
        raise ConfigError(
            f"sampler.window={brief(window)}: expected a whole number of at least 1, or null for "
            "all of the past"
        )


def check_strategy(strategy: str, *, draws: str, replace: bool) -> None:
    """Raise ConfigError if ``strategy`` is ``last``, and draws are by weight or with replacement.

    ``last`` takes the newest edges, without drawing.
    """
    if strategy != "last":
        return
    if draws != "uniform":
        raise ConfigError(
            f"sampler.strategy=last: expected uniform with draws by {draws.split('_')[0]}; "
            "sampler=neighbor takes the newest edges"
        )
    if replace:
        raise ConfigError("sampler.strategy=last: expected uniform with sampler.replace=true")
