from __future__ import annotations

import pytest

from gnnscale.backend.fpga.csim.seal import is_sealed, seal

SEALED = seal(b"\x7fELF and more")


def test_what_was_sealed_is_whole() -> None:
    assert SEALED.startswith(b"\x7fELF and more\n")
    assert is_sealed(SEALED)
    assert is_sealed(seal(SEALED))
    assert is_sealed(seal(b""))


@pytest.mark.parametrize("place", range(len(SEALED)))
def test_any_damage_is_noticed(place: int) -> None:
    assert not is_sealed(SEALED[:place])
    assert not is_sealed(SEALED[:place] + SEALED[place + 1 :])
    assert not is_sealed(SEALED[:place] + bytes([SEALED[place] ^ 1]) + SEALED[place + 1 :])
