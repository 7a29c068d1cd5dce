import pickle
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from copying_device import Copying
from one_line import one_line
from round_figures import plan_of, platform, predicted, share, workload

from gnnscale.core.errors import ConfigError
from gnnscale.planner import Accelerator, Cpu, Device, Emulated, registry
from gnnscale.planner.cost_model.predict import accelerator_seconds, host_seconds
from gnnscale.planner.planner import plan_devices
from gnnscale.planner.registry import DeviceKind, device_kind, parse_devices, register_device

OPENER = "my_package.backend:MyBackend"
RATES = {"macs_per_s": 1e9, "memory_bandwidth": 1e9, "memory_bytes": 1 << 30}


@dataclass(frozen=True, kw_only=True)
class Mine(Accelerator):
    kind: ClassVar[str] = "mine"

    colour: str = "red"


@dataclass(frozen=True, kw_only=True)
class Reading(Accelerator):
    kind: ClassVar[str] = "reading"
    samples: ClassVar[bool] = True
    loads: ClassVar[bool] = True


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> dict[str, DeviceKind]:
    found = dict(registry._BUILT_IN)
    monkeypatch.setattr(registry, "_KINDS", found)
    return found


def test_devices_of_a_registered_kind() -> None:
    known = "allowed are cpu, emulated, cuda, fpga"
    with pytest.raises(ConfigError, match=rf"^x\.1\.kind=mine: {known}$"):
        parse_devices(["cpu", {"kind": "mine"}], option="x")
    assert registry.custom_kinds() == ()
    for _ in range(2):
        register_device(Mine, OPENER)
        assert registry.custom_kinds() == (DeviceKind(metadata=Mine, opener=OPENER),)
    assert device_kind("mine").opener == OPENER
    assert device_kind("cpu").metadata is Cpu
    register_device(Mine, OPENER)
    mine = {"kind": "mine", **RATES}
    entries = ["cpu", mine, mine | {"name": "left", "colour": "blue"}]
    devices = parse_devices(entries, option="devices")
    assert devices[0].name == "cpu:0"
    assert devices[1] == Mine(name="mine:1", **RATES)
    assert devices[2] == Mine(name="left", colour="blue", **RATES)
    with pytest.raises(ConfigError, match=r"^x\.0\.colours: unknown option"):
        parse_devices([mine | {"colours": "blue"}], option="x")
    with pytest.raises(ConfigError, match=rf"^kind=yours: {known}, mine$"):
        device_kind("yours")


def of_kind(name: Any) -> type[Accelerator]:
    return type("Odd", (Accelerator,), {"kind": name})


NO_SUBCLASS = "expected a subclass of Accelerator"
LETTERS = "expected lower-case letters, digits and _"


@pytest.mark.parametrize(
    ("metadata", "opener", "message"),
    [
        (of_kind("mine"), OPENER, "Odd.kind=mine: expected an unused kind, got that of Mine"),
        (Mine, "my_package.backend:Other", f"that of Mine, opened by {OPENER}"),
        (type("Fast", (Emulated,), {}), OPENER, "Fast.kind=emulated: expected an unused kind"),
        (Cpu, OPENER, NO_SUBCLASS),
        (Mine(**RATES), OPENER, NO_SUBCLASS),
        (Accelerator, OPENER, f"Accelerator.kind=None: {LETTERS}"),
        (of_kind("a\nb"), OPENER, LETTERS),
        (of_kind("2gpu"), OPENER, f"Odd.kind=2gpu: {LETTERS}"),
        (of_kind(7), OPENER, f"Odd.kind=7: {LETTERS}"),
        (of_kind("odd"), "my_package.backend", "opener=my_package.backend: expected module:name"),
        (of_kind("odd"), "backend:open()", "opener=backend:open(): expected module:name"),
        (of_kind("odd"), "", "expected module:name"),
    ],
)
def test_kinds_that_are_refused(kinds, metadata, opener, message) -> None:
    register_device(Mine, OPENER)
    before = dict(kinds)
    with one_line(message):
        register_device(metadata, opener)
    assert kinds == before


def test_another_process_knows_what_this_one_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    found = DeviceKind(metadata=Copying, opener="copying_device:CopyingBackend")
    register_device(found.metadata, found.opener)
    sent = pickle.dumps(registry.custom_kinds())
    monkeypatch.setattr(registry, "_KINDS", dict(registry._BUILT_IN))
    for _ in range(2):  # a worker may import the module that registers as well
        registry.register_kinds(pickle.loads(sent))
        assert device_kind("copying") == found


def test_what_samples_and_loads_by_itself_says_how_fast() -> None:
    for rates, message in (
        ({"link_bandwidth": 1e9}, "sampled_edges_per_s=None: expected a rate"),
        ({"sampled_edges_per_s": 1e6}, "link_bandwidth=null: expected a rate; the device"),
        ({"link_bandwidth": 1e9, "sampled_edges_per_s": 0.0}, "sampled_edges_per_s=0.0: expected"),
    ):
        register_device(Reading, OPENER)
        with one_line(begins=f"x.0.{message}"):
            parse_devices([{"kind": "reading", **RATES, **rates}], option="x")


HELPED = Mine(name="mine:0", link_bandwidth=1e9, **RATES)


def reading(rate: float = 1e7) -> Reading:
    return Reading(name="reading:0", link_bandwidth=1e9, sampled_edges_per_s=rate, **RATES)


def test_what_a_device_does_by_itself_is_charged_to_it() -> None:
    device, work, machine = reading(), workload(), platform(1)
    own = accelerator_seconds(device, work, work.size(100))
    # 11,000 edges at 10 M/s, each of them read over the link, and so are the offsets of the 1,100
    # lists that they are in; 10,000 rows of 80 bytes, which take two requests of 64 each.
    assert own.sample == pytest.approx(1.1e-3 + 64 * (11_000 + 1_100) / 1e9)
    assert own.load == pytest.approx(10_000 * 128 / 1e9)
    assert own.transfer == 0
    plan = plan_of(share(device))
    (found,) = predicted(plan, machine).devices
    assert (found.sample, found.load) == (own.sample, own.load)
    assert host_seconds(plan, [work], machine, None) == ({},)

    # The host does the same for a device that does nothing by itself.
    own = accelerator_seconds(HELPED, work, work.size(100))
    assert (own.sample, own.load) == (0, 0)
    assert own.transfer > 800e3 / 1e9
    (seconds,) = host_seconds(plan_of(share(HELPED)), [work], machine, None)
    assert seconds.keys() == {"sample", "load"}
    assert min(seconds.values()) > 0

    def seeds(device: Device) -> int:
        options = {"batch_size": 1000, "cores": 2, "prefetch": "none", "split": None}
        given = {"workloads": [workload()] * 2, "platform": platform(2)}
        return plan_devices([Cpu(name="cpu:0"), device], **options, **given)[0][0].split[1]

    # A million edges a second is what a thread of the host samples.
    assert 0 < seeds(reading(1e5)) < seeds(HELPED) < seeds(reading(1e9))
