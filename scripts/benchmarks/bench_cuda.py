"""Measure everything that gnnscale does on a GPU, with the installed peers.

    python scripts/benchmarks/bench_cuda.py [SECTION ...] [--out FILE] [--docs]

Sections are check, gather, sample, epoch, step, beside and profile; without one all of them run.
`check` compares every kernel with the host's code first, and what follows is measured beside the
card's own ceilings. `--docs` writes docs/gpu.json, and the table of targets in docs/gpu.md. A
section that fails ends the run: the figures of docs/gpu.json are of a process for each section.
`--on-host` runs the same in tiny sizes with the host in the GPU's place: its figures say nothing of
a GPU.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    from benchmarks.cuda.main import main

    sys.exit(main(sys.argv[1:]))
