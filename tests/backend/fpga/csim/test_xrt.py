import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.backend.fpga.csim import xrt

TO = xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE
FROM = xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE
DONE = xrt.ert_cmd_state.ERT_CMD_STATE_COMPLETED
COMPUTE, HOLD = 0, 3


def legacy(path, name, index=0):
    device = xrt.device(index)
    loaded = device.load_xclbin(str(path))
    return device, xrt.kernel(device, loaded, name, xrt.kernel.shared)


def modern(path, name="gnnscale_step", index=0):
    device = xrt.device(index)
    loaded = device.register_xclbin(xrt.xclbin(str(path)))
    return device, xrt.kernel(xrt.hw_context(device, loaded), name)


def arguments(device, bank):
    """Return a buffer for each of batch, edges, features, weights, gradients, scratch, result."""
    return [xrt.bo(device, 16, xrt.bo.normal, bank) for _ in range(7)]


@pytest.mark.long
@pytest.mark.parametrize("opened", [legacy, modern])
def test_a_run_by_hand(bitstream, opened):
    device, kernel = opened(bitstream, "gnnscale_step:{gnnscale_step_2}")
    assert [kernel.group_id(index) for index in range(7)] == [1] * 7
    buffers = arguments(device, kernel.group_id(0))
    integers, floats = np.array([[4, 5], [10, 20]], np.uint32), np.array([[1, 2], [0.5, 0]])
    for buffer, values in zip(buffers, (*integers, *floats.astype(np.float32)), strict=False):
        buffer.write(values, 0)
        buffer.sync(TO)
    run = kernel(*buffers, 2, -3, COMPUTE)
    assert (run.wait(), run.state()) == (DONE, DONE)
    assert buffers[4].read(8, 0).view(np.float32).tolist() == [0, 0]
    buffers[4].sync(FROM, 8, 0)
    assert buffers[4].read(8, 0).view(np.float32).tolist() == [11.5, 19.5]
    assert run.csim_counters == {"items": 2, "gradient_bytes": 16}
    assert run.csim_error == ""
    assert run.csim_seconds > 0


def test_what_a_bitstream_and_a_device_say(bitstream):
    image = xrt.xclbin(str(bitstream))
    (kernel,) = image.get_kernels()
    assert (kernel.get_name(), kernel.get_num_args()) == ("gnnscale_step", 10)
    assert image.get_xsa_name() == "csim"
    assert len(image.get_uuid().to_string()) == 36
    assert xrt.uuid(image.get_uuid().to_string()).to_string() == image.get_uuid().to_string()
    assert xrt.enumerate_devices() > 0
    device = xrt.device("0000:02:00.1")
    assert device.get_info(xrt.xrt_info_device.name) == "gnnscale_csim"
    assert device.get_info(xrt.xrt_info_device.bdf) == "0000:02:00.1"
    with pytest.raises(RuntimeError, match="no bitstream was loaded"):
        device.get_xclbin_uuid()
    loaded = device.load_xclbin(image)
    assert device.get_xclbin_uuid() is loaded
    assert device.get_info(xrt.xrt_info_device.max_clock_frequency_mhz) == "300"


def test_a_run_that_is_set_up_argument_by_argument(bitstream):
    device, kernel = modern(bitstream)
    run = xrt.run(kernel)
    assert run.state() == xrt.ert_cmd_state.ERT_CMD_STATE_NEW
    assert (run.csim_error, run.csim_counters, run.csim_seconds) == ("", {}, 0.0)
    with pytest.raises(RuntimeError, match="was not started"):
        run.wait()
    for index, value in enumerate([*arguments(device, 0), np.int64(1), 1, COMPUTE]):
        run.set_arg(index, value)
    for _ in range(2):
        run.start()
        assert run.wait(20_000) == DONE


@pytest.fixture(scope="module")
def plain(built):
    """A device, and the kernel of no unit by name."""
    return modern(built())


@settings(max_examples=30)
@given(st.one_of(st.integers(2**31), st.integers(max_value=-(2**31) - 1), st.floats()))
def test_scalars_have_32_bits(plain, value):
    with pytest.raises(TypeError):
        xrt.run(plain[1]).set_arg(7, value)


def test_wrong_arguments_are_told_at_the_start(plain):
    device, kernel = plain
    valid = [*arguments(device, 0), 1, 1, COMPUTE]
    for index, wrong, message in (
        (8, None, r"argument 8 \(scale\) of gnnscale_step was not set"),
        (4, None, r"argument 4 \(gradients\) of gnnscale_step was not set"),
        (4, 5, r"argument 4 \(gradients\) of gnnscale_step is a buffer, and was set to a scalar"),
        (7, valid[0], r"argument 7 \(count\) of gnnscale_step is a scalar, and was set to a buf"),
    ):
        run = xrt.run(kernel)
        for position, value in enumerate(valid):
            if (given := wrong if position == index else value) is not None:
                run.set_arg(position, given)
        with pytest.raises(RuntimeError, match=message):
            run.start()
        assert run.state() == xrt.ert_cmd_state.ERT_CMD_STATE_NEW
    with pytest.raises(RuntimeError, match="Bad argument index 10"):
        xrt.run(kernel).set_arg(10, 1)
    for index in (7, 10):
        with pytest.raises(IndexError, match="is no buffer"):
            kernel.group_id(index)
    with pytest.raises(TypeError, match="kernel: takes"):
        xrt.kernel(xrt.device(0), "gnnscale_step")


def test_buffers_and_bitstreams_of_other_units(bitstream):
    device, kernel = modern(bitstream, "gnnscale_step:{gnnscale_step_1}")
    with pytest.raises(RuntimeError, match="wrong bank: gnnscale_step_1 uses bank 0; argument 0"):
        kernel(*arguments(device, 1), 1, 1, COMPUTE)
    mixed = [*arguments(device, 0)[:6], arguments(device, 2)[6]]
    with pytest.raises(RuntimeError, match=r"argument 6 \(result\) is in bank 2$"):
        kernel(*mixed, 1, 1, COMPUTE)
    with pytest.raises(RuntimeError, match="no bank 4: the card has 4"):
        xrt.bo(device, 16, xrt.bo.normal, 4)
    with pytest.raises(RuntimeError, match="is registered with the device"):
        xrt.hw_context(xrt.device(0), xrt.xclbin(str(bitstream)).get_uuid())


def test_runs_of_one_unit_queue_up(bitstream, gate):
    device, kernel = modern(bitstream, "gnnscale_step:{gnnscale_step_1}")
    buffers = arguments(device, 0)
    first = kernel(*buffers, 1, 7, HOLD)
    second = kernel(*buffers, 1, 8, COMPUTE)
    assert second.wait(20) == xrt.ert_cmd_state.ERT_CMD_STATE_TIMEOUT
    assert second.state() == xrt.ert_cmd_state.ERT_CMD_STATE_QUEUED
    with pytest.raises(RuntimeError, match="can't launch"):
        first.start()
    gate()
    assert (second.wait(20_000), first.state()) == (DONE, DONE)
    buffers[6].sync(FROM)
    assert buffers[6].read(8, 0).view(np.uint32).tolist() == [1, 8]


def test_buffers_outlive_their_run(bitstream, gate):
    device, kernel = modern(bitstream)
    run = kernel(*arguments(device, 0), 1, 1, HOLD)
    with pytest.raises(RuntimeError, match="out of device memory"):
        xrt.bo(device, 1 << 20, xrt.bo.normal, 0)
    gate()
    assert run.wait(20_000) == DONE


@pytest.mark.long
def test_another_bitstream_replaces_one_that_nobody_uses(built):
    first, other = built(), built(GNNSCALE_COMPUTE_UNITS=1)
    device, kernel = modern(first, index=5)
    with pytest.raises(RuntimeError, match="busy"):
        device.load_xclbin(str(other))
    # On another card it is welcome.
    assert legacy(other, "gnnscale_step", 6)[1].group_id(0) == 0
    del kernel
    assert legacy(other, "gnnscale_step", 5)[1].group_id(0) == 0
