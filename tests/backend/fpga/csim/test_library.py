import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gnnscale.backend.fpga.csim.library import Buffer, Library, is_sealed, seal


def buffers(count: int) -> tuple[list[np.ndarray], list[Buffer]]:
    """One array for each buffer of the kernel, ``count`` words each."""
    arrays = [np.zeros(count, np.float32) for _ in range(7)]
    return arrays, [Buffer(each.ctypes.data, each.nbytes) for each in arrays]


def test_a_library_says_what_it_is_and_errors_are_of_the_call(bitstream: Path) -> None:
    library = Library(bitstream)
    assert library.kernel == "gnnscale_step"
    assert [each.name for each in library.arguments][-4:] == ["result", "count", "scale", "mode"]
    assert [each.is_buffer for each in library.arguments] == [True] * 7 + [False] * 3
    assert (library.compute_units, library.bank_bytes) == (4, 1 << 20)
    # What this program does not know is passed through.
    assert library.design["m"] == 512
    _, passed = buffers(1)
    found = library.call([*passed, 1, 1, 1])
    assert found.error == "vertex 7 of layer 1 is none of the batch"
    assert library.call([*passed, 1, 1, 0]).error == ""
    assert library.call([*passed, 2, 1, 0]).error == "gradients are too small"


def test_calls_of_two_threads_do_not_mix(bitstream: Path, gate: Callable[[], None]) -> None:
    library = Library(bitstream)
    outcomes = {}

    def call(mode: int) -> None:
        _, passed = buffers(4)
        outcomes[mode] = library.call([*passed, 4, 1, mode])

    holding = threading.Thread(target=call, args=[3])
    holding.start()
    call(1)
    gate()
    holding.join()
    assert (outcomes[1].error[:8], outcomes[3].error) == ("vertex 7", "")


NAMES = b"\x7fELF gnnscale_csim_design gnnscale_csim_regions gnnscale_csim_error"
NAMES += b" gnnscale_csim_counters gnnscale_csim_counter_names"


def test_foreign_and_damaged_files_are_refused_in_one_line(bitstream: Path, tmp_path: Path) -> None:
    # Loading half of one would end this process: a page that is mapped and not there.
    whole = bitstream.read_bytes()
    half, foreign = whole[: len(whole) // 2], "not the bitstream of a simulated board"
    file = tmp_path / "file.so"
    for content, message in (
        (b"hello", "it is no shared library"),
        (b"", "it is empty"),
        (b"xclbin2\0" + bytes(64), "a bitstream of a real board"),
        (b"\x7fELF" + bytes(64), "it has no gnnscale_csim_design"),
        (seal(NAMES), "it cannot be loaded"),
        (NAMES, "its checksum is wrong"),
        (half, foreign),
        (half + bytes(8) + whole[len(half) + 8 :], foreign),
    ):
        file.write_bytes(content)
        with pytest.raises(RuntimeError, match=message) as caught:
            Library(file)
        assert str(caught.value).startswith(str(file))
        assert "\n" not in str(caught.value)
    os.mkfifo(tmp_path / "pipe")
    for name, message in (("no", "No such file"), ("", "not a regular"), ("pipe", "not a regular")):
        with pytest.raises(RuntimeError, match=message):
            Library(tmp_path / name)


@pytest.mark.long
@pytest.mark.parametrize(
    ("macros", "message"),
    [
        ({"FORMAT": 2}, "expected format=1, got 2"),
        ({"GNNSCALE_COMPUTE_UNITS": 0}, "its design says compute_units=0"),
        ({"KERNEL": '"\\""'}, "its design is not JSON"),
        ({"KERNEL": '"gnnscale_other"'}, "it has no gnnscale_other"),
    ],
)
def test_other_formats_are_refused(built, macros, message) -> None:
    with pytest.raises(RuntimeError, match=message):
        Library(built(**macros))


def test_any_damage_of_what_was_sealed_is_noticed() -> None:
    sealed = seal(b"\x7fELF and more")
    assert sealed.startswith(b"\x7fELF and more\n")
    assert all(map(is_sealed, (sealed, seal(sealed), seal(b""))))
    for i, byte in enumerate(sealed):
        assert not is_sealed(sealed[:i])
        assert not is_sealed(sealed[:i] + sealed[i + 1 :])
        assert not is_sealed(sealed[:i] + bytes([byte ^ 1]) + sealed[i + 1 :])
