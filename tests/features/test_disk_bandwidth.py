"""Rates of a disk; how fast it is depends on the machine, and how they are counted does not."""

from pathlib import Path

import pytest

from gnnscale.core import ConfigError
from gnnscale.features import disk
from gnnscale.features.disk import DiskRates, cached_disk_rates, max_read_gap, measure_disk


def test_gap_is_what_is_read_in_the_time_of_a_request() -> None:
    # 20 microseconds a request, of which 4.096 are those of its 4 KiB.
    assert DiskRates(requests_per_s=50_000, bytes_per_s=1e9).max_gap_bytes == 20_000 - 4096
    assert DiskRates(requests_per_s=50_000, bytes_per_s=1e8).max_gap_bytes == 0


def test_small_and_large_reads(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(1 << 22))
    rates = measure_disk(file, depth=8, seconds=0.02)
    assert 0 < rates.requests_per_s < 1e8
    # Larger reads give more bytes, of any disk.
    assert rates.bytes_per_s > rates.requests_per_s * 4096


class CountedReads:
    """Reads a thousand rows a second, and three requests for every four rows."""

    def __init__(self, path: str, **options: object) -> None:
        self.num_rows, self.row_bytes = options["num_rows"], options["row_bytes"]
        self.rows, self.is_open = 0, True

    def submit(self, rows, pool, slots) -> int:
        assert rows.min() >= 0
        assert rows.max() < self.num_rows
        assert pool[0].shape[1] == self.row_bytes
        self.rows += len(rows)
        return self.rows

    def wait(self, ticket: int) -> None:
        assert ticket <= self.rows

    def take_counters(self) -> dict[str, float]:
        return {"requests": 0.75 * self.rows, "busy_s": self.rows / 1000}

    def close(self) -> None:
        self.is_open = False


def test_rates_are_requests_in_the_seconds_of_reading(tmp_path, monkeypatch) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(1 << 20))
    readers: list[CountedReads] = []

    def opened(*args, **options) -> CountedReads:
        readers.append(CountedReads(*args, **options))
        return readers[-1]

    monkeypatch.setattr(disk.ops, "RowReader", opened)
    rates = measure_disk(file, seconds=0.001)
    assert rates.requests_per_s == pytest.approx(750)
    assert rates.bytes_per_s == pytest.approx(750 * 2**16)
    assert [(each.num_rows, each.row_bytes) for each in readers] == [(256, 4096), (16, 2**16)]
    assert not any(each.is_open for each in readers)


def test_a_file_is_measured_once_unless_it_is_small(tmp_path, monkeypatch) -> None:
    file, small = tmp_path / "file", tmp_path / "small"
    for path, size in ((file, 1 << 24), (small, (1 << 24) - 1)):
        with path.open("wb") as opened:
            opened.truncate(size)
    measured: list[Path] = []
    rates = DiskRates(requests_per_s=50_000, bytes_per_s=1e9)
    monkeypatch.setattr(disk, "measure_disk", lambda path: measured.append(path) or rates)
    assert [cached_disk_rates(each) for each in (file, file, small)] == [rates, rates, None]
    # All of a small file may be read at once.
    assert [max_read_gap(file), max_read_gap(small)] == [rates.max_gap_bytes, (1 << 24) - 1]
    assert measured == [file]


def test_what_cannot_be_measured(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(1000))
    with pytest.raises(ConfigError, match=f"^{file}: expected .* bytes, got 1000$"):
        measure_disk(file)
    with pytest.raises(FileNotFoundError):
        measure_disk(tmp_path / "absent")
