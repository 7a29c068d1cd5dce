import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest


@pytest.fixture(scope="session")
def fuzzer() -> Iterator[ProcessPoolExecutor]:
    """A process that does nothing but fuzz.

    The fuzzer forks, and the process of the tests has threads that a child of it would lack.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as executor:
        yield executor
