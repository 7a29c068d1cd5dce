import subprocess
import sys

import pytest

import gnnscale.core
from gnnscale.core.errors import ConfigError


def test_a_name_comes_from_its_home_and_nothing_else_is_imported() -> None:
    assert gnnscale.core.ConfigError is ConfigError
    with pytest.raises(AttributeError, match=r"^module 'gnnscale.core' has no attribute 'absent'$"):
        gnnscale.core.absent  # noqa: B018
    program = "import sys, gnnscale.core as c; c.ConfigError; print('numpy' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False\n"


def test_pyarrow_is_imported_at_its_first_use() -> None:
    program = (
        "import sys; from gnnscale.core.lazy import pyarrow; print('pyarrow' in sys.modules); "
        "print(pyarrow.compute.max(pyarrow.array([1, 3])).as_py())"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False\n3\n"
