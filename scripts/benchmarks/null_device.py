"""A device that costs nothing: what is left of a step is the host's own work."""

from dataclasses import dataclass
from typing import Any, ClassVar

from gnnscale.backend import BatchOutcome, DeviceBatch
from gnnscale.backend.cuda import step_records as records
from gnnscale.backend.cuda.backend import CudaBackend
from gnnscale.backend.cuda.host_engine import HostEngine
from gnnscale.backend.cuda.sampler_plan import State
from gnnscale.core.stages import Traffic
from gnnscale.planner import Accelerator, Cuda, register_device
from gnnscale.planner.cost_model.equations import BatchSize

_SECONDS = {"sample": 1e-5, "load": 1e-5, "transfer": 1e-5, "propagate": 1e-5, "sync": 1e-5}
OUTCOME = BatchOutcome(
    loss=1.0, size=BatchSize(vertices=(3, 2, 1), edges=(1, 1)), traffic=Traffic(), seconds=_SECONDS
)


@dataclass(frozen=True, kw_only=True)
class Null(Accelerator):
    """Does nothing, whenever the host asks it to."""

    kind: ClassVar[str] = "nothing"
    figures: ClassVar[str] = "pretended"


@dataclass(frozen=True, kw_only=True)
class OwningNull(Null):
    """Does whole steps of nothing by itself."""

    kind: ClassVar[str] = "owned_nothing"
    owns_step: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Recorded(Cuda):
    """A GPU whose recorded steps cost nothing."""

    kind: ClassVar[str] = "recorded_nothing"
    figures: ClassVar[str] = "pretended"  # type: ignore[assignment]

    host_driven: bool = True


class NullStream:
    """Does work at once, but for recordings, which it repeats by doing nothing."""

    is_done = True

    def run(self, work: Any, *, waits: bool = False) -> None:
        work()

    def capture(self, work: Any) -> Any:
        work()
        return self

    def mark(self) -> Any:
        return self

    def seconds_since(self, earlier: Any) -> float:
        return 0.0

    def replay(self) -> None:
        pass

    def wait_for(self, mark: Any) -> None:
        pass

    wait = close = replay


class NullEngine(HostEngine):
    """The host, whose streams cost nothing."""

    def stream(self) -> Any:
        return NullStream()


def open_recorded(device: Recorded, host: Any) -> CudaBackend:
    """Open the GPU's own backend: what is left of its steps is the host's part."""
    backend = CudaBackend(device, host, NullEngine(device))
    # Steps that nobody does are reported as empty ones, and not as halted.
    reports = backend._own_steps._records._reported_words
    reports[:, records._FIRST_STATE + State.ERROR] = -1
    return backend


class Done:
    """An outcome that is there."""

    ready = True

    def read(self) -> BatchOutcome:
        return OUTCOME


class NullBackend:
    """Samples and reads one mini-batch, and hands it out ever after."""

    def __init__(self, device: Any, host: Any) -> None:
        self.device, self._host = device, host
        self._batch = self._inputs = None
        self._done = Done()

    def sample(self, seeds: Any, step: int) -> Any:
        if self._batch is None:
            self._batch = self._host.sampler.sample(seeds, step)
        return self._batch

    def on_host(self, batch: Any) -> Any:
        return batch

    def load(self, batch: Any) -> Any:
        if self._inputs is None:
            self._inputs = self._host.loader.load(batch)
        return self._inputs

    def transfer(self, batch: Any, inputs: Any) -> DeviceBatch:
        return DeviceBatch(batch=batch, inputs=inputs, traffic=Traffic())

    def propagate(self, batch: DeviceBatch, weight: float) -> None:
        pass

    def copy_gradients(self, into: list[Any]) -> None:
        for target in into:
            target.zero_()

    def finish(self, batch: DeviceBatch) -> BatchOutcome:
        return OUTCOME

    def train(self, seeds: Any, step: int, *, num_seeds: int, rate: float, updates: bool) -> Done:
        return self._done

    def load_state(self) -> None:
        pass

    copy_state = update_weights = copy_buffers = close = load_state

    def set_threads(self, threads: Any) -> None:
        pass


register_device(Null, "benchmarks.null_device:NullBackend")
register_device(OwningNull, "benchmarks.null_device:NullBackend")
register_device(Recorded, "benchmarks.null_device:open_recorded")
FIGURES = {"macs_per_s": 1e12, "memory_bandwidth": 1e12, "memory_bytes": 1 << 40}


def plan(kind: str) -> str:
    """Return the option of a plan of one such device."""
    figures = ",".join(f"{name}:{value}" for name, value in FIGURES.items())
    return f"device_plan.devices=[{{kind:{kind},link_bandwidth:1e11,{figures}}}]"
