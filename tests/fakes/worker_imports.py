"""Imports of the server that forks workers of tests, which take longer than most runs.

They are those of PyG's modules, and of modes that see torch's operations.
"""

from contextlib import suppress

import torch._dynamo  # noqa: F401
from few_bytes import read_few_bytes

with suppress(ImportError):
    import torch_geometric.nn  # noqa: F401

read_few_bytes()
