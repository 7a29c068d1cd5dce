import gzip
import io
import json
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzzing import formats
from fuzzing.formats import edit_file
from fuzzing.mutate import BYTES


def npy(array: object) -> bytes:
    out = io.BytesIO()
    np.save(out, np.asarray(array))
    return out.getvalue()


def npz(**arrays: object) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, array in arrays.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), npy(array))
    return out.getvalue()


CONTENTS = {
    "a.npy": npy(np.arange(12, dtype=np.int32)),
    "a.npz": npz(indptr=np.arange(4), indices=np.arange(3)),
    "a.json": json.dumps({"0": [1, 2], "1": [3]}).encode(),
    "a.csv": b"id,value\n0,1.5\n1,2.5\n",
    "a.csv.gz": gzip.compress(b"0,1\n1,2\n", mtime=0),
    "ind.a.graph": pickle.dumps({0: [1, 2], 1: [0]}, 2),
    "a.yaml": b"seed: 3\nmodel:\n  hidden: 8\n",
    "a.safetensors": (2).to_bytes(8, "little") + b"{}",
    "a": b"\x00\x01\x02\x03\x04\x05\x06\x07",
}


@pytest.mark.parametrize("name", CONTENTS)
def test_edits_depend_on_their_random_numbers_alone(name: str) -> None:
    rngs = (random.Random(7), random.Random(7))
    first, second = ([edit_file(name, CONTENTS[name], rng) for _ in range(200)] for rng in rngs)
    assert first == second
    assert len(set(first)) > 20


@pytest.mark.parametrize("name", CONTENTS)
def test_edits_of_a_format_take_damaged_content(name: str) -> None:
    for seed in range(200):
        rng = random.Random(seed)
        damaged = rng.choice(BYTES)(CONTENTS[name], rng)
        assert isinstance(edit_file(name, damaged, rng), bytes)


def test_header_edits_leave_the_data() -> None:
    content = CONTENTS["a.npy"]
    edited = [formats.npy_header(content, random.Random(seed)) for seed in range(50)]
    assert any(each != content for each in edited)
    assert all(each.endswith(content[-48:]) for each in edited)


def test_element_edits_leave_header_and_size() -> None:
    content = CONTENTS["a.npy"]
    changed = [formats.npy_element(content, random.Random(seed)) for seed in range(50)]
    values = {int(value) for each in changed for value in np.load(io.BytesIO(each))}
    assert {-(2**31), 2**31 - 1, -1} <= values
    assert {len(each) for each in changed} == {len(content)}


def test_zip_edits_reach_members_and_fields() -> None:
    content = CONTENTS["a.npz"]
    members = set()
    for seed in range(400):
        archive = zipfile.ZipFile(io.BytesIO(formats.member(content, random.Random(seed))))
        members |= {(info.filename, info.compress_type) for info in archive.infolist()}
    assert any(".." in name for name, _ in members)
    assert {method for _, method in members} == {0, 8, 12, 14}
    fields = [formats.zip_fields(content, random.Random(seed)) for seed in range(100)]
    assert {len(each) for each in fields} == {len(content)}


def test_every_opcode_that_calls_has_a_hostile_pickle(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("reduce system", "newobj_ex posix", "inst", "obj system by stack"):
        (tmp_path / "executed").unlink(missing_ok=True)
        try:
            pickle.loads(formats.HOSTILE[name])
        except (TypeError, AttributeError, pickle.UnpicklingError):
            assert name == "newobj_ex posix"  # a function is no class
        else:
            assert (tmp_path / "executed").exists()
