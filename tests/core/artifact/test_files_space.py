import shutil

import pytest

from gnnscale.core.artifact.files import NoSpaceError, check_space, size


def test_sizes_and_what_fits(tmp_path, monkeypatch) -> None:
    assert size(3 << 29) == "1.5 GiB"
    assert size(5 << 19) == "2.5 MiB"
    assert size(2000 << 30) == "2,000.0 GiB"
    assert check_space("x", tmp_path, memory=1 << 20, disk=1) is None
    monkeypatch.setattr("gnnscale.core.artifact.files.hardware.find_machine", None)
    check_space("x", tmp_path, memory=1 << 20)
    with pytest.raises(TypeError):
        check_space("x", tmp_path, memory=1 << 30)


def test_all_that_is_missing_is_told_in_one_line(tmp_path, monkeypatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
    with pytest.raises(NoSpaceError) as error:
        check_space("reddit", tmp_path, memory=1 << 60, disk=2 << 20)
    message = str(error.value)
    assert message.endswith(f" are free in {tmp_path}")
    message = message.removesuffix(f" in {tmp_path}")
    assert message.startswith("reddit: needs 1,073,741,824.0 GiB of memory, and ")
    assert message.endswith("available; 2.0 MiB of disk, and 1.0 MiB are free")
    with pytest.raises(NoSpaceError, match=f" are free in {tmp_path}$"):
        check_space("reddit", tmp_path / ".", disk=1 << 60)
    (tmp_path / ".store.partial").mkdir()
    with pytest.raises(NoSpaceError, match=f" are free in {tmp_path}$"):
        check_space("reddit", tmp_path / ".store.partial", disk=1 << 60)
