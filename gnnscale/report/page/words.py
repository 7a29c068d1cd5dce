"""Words of a report, with their meanings."""

import re
from html import escape, unescape

#: Meaning of each word; ``words`` looks for it, and for its plural, in the text of a page.
_MEANINGS = {
    "seed": "a vertex, or an edge, whose prediction a mini-batch trains; as an option, the number "
    "from which all random choices follow",
    "epoch": "one pass over the training seeds",
    "step": "one update of the weights, by the mini-batches of all devices",
    "mini-batch": "the seeds of a step, and the neighbors that were sampled for them",
    "validation": "vertices that choose the best epoch; no weight is trained on them",
    "sample": "stage of a step: neighbors of the seeds are drawn",
    "load": "stage of a step: feature rows are read",
    "exchange": "stage of a step: devices send each other rows",
    "transfer": "stage of a step: rows move to the memory of a device",
    "propagate": "stage of a step: the model's forward and backward pass",
    "sync": "stage of a step: gradients of all devices are summed",
    "prefetch": "mini-batches that are sampled and loaded while an earlier one propagates",
    "host": "the processor, with its memory",
    "link": "the connection between the host and a device, such as PCIe",
    "rehearsal": "steps that are measured before training, to choose a plan",
    "hit": "a row or a list that a device's cache has",
    "MTEPS": "million edges traversed per second: sampled edges of all layers over training time",
    "RSS": "resident set size: memory of a process, pages that it shares included",
    "PSS": "proportional set size: a shared page counts in parts",
    "emulated": "of a device that computes on this machine, in the time of its data sheet",
    "csim": "of FPGA kernels that a processor simulates",
    "F1": "the harmonic mean of precision and recall",
}


def words(page: str) -> str:
    """Return HTML that lists the known words of ``page`` with their meanings, closed at first."""
    text = unescape(re.sub(r"<(script|style)>.*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL))
    present = set(re.findall(r"[\w-]+", text.lower()))
    items = "".join(
        f"<dt>{word}</dt><dd>{escape(meaning)}</dd>"
        for word, meaning in _MEANINGS.items()
        if {word.lower(), f"{word.lower()}s"} & present
    )
    return f'<details class="card"><summary>Words</summary><dl>{items}</dl></details>'
