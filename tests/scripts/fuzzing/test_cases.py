from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from fuzzing.campaign import run_kept
from fuzzing.case import OK, REFUSED

pytestmark = pytest.mark.integration

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_kept_case(file: Path, fuzzer: ProcessPoolExecutor) -> None:
    outcome = fuzzer.submit(run_kept, file.read_text()).result()
    assert outcome.verdict in (OK, REFUSED), "\n".join(outcome)
