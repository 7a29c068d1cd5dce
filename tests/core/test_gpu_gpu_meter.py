"""What a GPU takes, by a driver that the tests compile."""

import json
import subprocess
import sys
from typing import Any

import pytest
from nvidia_driver import driver_in

from gnnscale.core.gpu import GpuMeter, GpuUse

PROGRAM = """
import json, sys
from dataclasses import asdict
from gnnscale.core.gpu import GpuMeter
meter = GpuMeter.of(int(sys.argv[1]))
if meter is None:
    print("null")
else:
    found = [asdict(meter.take()) for _ in range(2)]
    meter.close()
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: Any) -> dict[str, str]:
    return driver_in(tmp_path_factory.mktemp("driver"))


def taken(environment: dict[str, str], index: int, **variables: str) -> Any:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(index)],
        env=environment | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(ran.stdout)


@pytest.mark.long
@pytest.mark.parametrize(("index", "visible", "joules"), [(0, "0,1", 1.5), (0, "1", 3.0)])
def test_it_counts_from_one_call_to_the_next(
    driver: dict[str, str], index: int, visible: str, joules: float
) -> None:
    known = {
        "energy_j": joules,
        "received_bytes": int(joules / 1.5 * 4096),
        "sent_bytes": None,  # which this driver does not count
    }
    assert taken(driver, index, CUDA_VISIBLE_DEVICES=visible) == [known, known]


def test_what_a_driver_refuses_is_none(driver: dict[str, str]) -> None:
    nothing = {"energy_j": None, "received_bytes": None, "sent_bytes": None}
    assert taken(driver, 0, GNNSCALE_TEST_NVML="quiet") == [nothing, nothing]


@pytest.mark.long
@pytest.mark.parametrize("how", [{"GNNSCALE_TEST_NVML": "broken"}, {"LD_LIBRARY_PATH": ""}])
def test_without_a_driver_nothing_is_counted(driver: dict[str, str], how: dict[str, str]) -> None:
    assert taken(driver, 0, **how) is None
    assert taken(driver, 7) is None
    assert GpuMeter.of(None) is None


def test_uses_add_up_unless_one_is_unknown() -> None:
    one = GpuUse(energy_j=2.0, received_bytes=5)
    assert one + one == GpuUse(energy_j=4.0, received_bytes=10)
    assert (one + GpuUse(energy_j=1.0)) == GpuUse(energy_j=3.0)
