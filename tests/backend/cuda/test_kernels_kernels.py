import re

from gnnscale.backend.cuda import kernels


def test_native_headers_are_those_that_kernels_include() -> None:
    # The installed package has no others.
    root = kernels.sources()
    headers = kernels.native_headers(root) / "gnnscale"
    files = [file for file in root.rglob("*") if file.suffix in (".cu", ".cpp", ".hpp")]
    waiting = [file for file in files if "test" not in file.relative_to(root).parts]
    found: set[str] = set()
    while waiting:
        file = waiting.pop()
        for name in re.findall(r'#include "gnnscale/(\w+\.hpp)"', file.read_text()):
            if name not in found:
                found.add(name)
                waiting.append(headers / name)
    assert found == set(kernels._NATIVE_HEADERS)
