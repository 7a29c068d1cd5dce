"""Measure everything that gnnscale does on a GPU, with the installed peers.

    python scripts/benchmarks/bench_cuda.py [SECTION ...] [--out FILE] [--docs]

Sections are check, gather, sample, epoch, step, beside and profile; without one all of them run.
`--docs` writes docs/gpu.json, and the table of targets in docs/gpu.md. `--on-host` runs the same in
tiny sizes with the host in the GPU's place.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    from benchmarks.cuda.main import main

    sys.exit(main(sys.argv[1:]))
