import json
import subprocess
import sys
from typing import Any

import pytest

from gnnscale.core.gpu import GpuMeter, GpuUse

#: Takes the use of a GPU twice, for each of some numbers of GPUs and sets of variables.
PROGRAM = """
import json, os, sys
from dataclasses import asdict
from gnnscale.core.gpu import GpuMeter
for index, variables in json.loads(sys.argv[1]):
    before = dict(os.environ)
    os.environ.update(variables)
    meter = GpuMeter.of(index)
    if meter is None:
        print("null")
    else:
        print(json.dumps([asdict(meter.take()) for _ in range(2)]))
        meter.close()
    for name in variables:
        os.environ.pop(name)
    os.environ.update(before)
"""


def taken(environment: dict[str, str], *asked: tuple[int, dict[str, str]]) -> list[Any]:
    command = [sys.executable, "-c", PROGRAM, json.dumps(asked)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def use(joules: float | None, received: int | None) -> dict[str, Any]:
    # This driver does not count what is sent.
    return {"energy_j": joules, "received_bytes": received, "sent_bytes": None}


@pytest.mark.long
def test_it_counts_from_one_call_to_the_next(driver: dict[str, str]) -> None:
    visible = [(0, {"CUDA_VISIBLE_DEVICES": each}) for each in ("0,1", "1")]
    answers = [(0, {"GNNSCALE_TEST_NVML": name}) for name in ("quiet", "broken")]
    first, second, quiet, broken, absent = taken(driver, *visible, *answers, (7, {}))
    assert first == [use(1.5, 4096)] * 2
    assert second == [use(3.0, 8192)] * 2
    assert quiet == [use(None, None)] * 2
    assert broken is absent is None
    assert taken({**driver, "LD_LIBRARY_PATH": ""}, (0, {})) == [None]
    assert GpuMeter.of(None) is None
    one = GpuUse(energy_j=2.0, received_bytes=5)
    assert one + one == GpuUse(energy_j=4.0, received_bytes=10)
    assert (one + GpuUse(energy_j=1.0)) == GpuUse(energy_j=3.0)
