"""Most hits that any replacement has, by trying all of them."""

from collections.abc import Sequence
from functools import cache
from itertools import combinations


def most_found(batches: Sequence[Sequence[int]], capacity: int, *, match: bool) -> int:
    """Return the most rows that any replacement finds on the device, by trying all of them."""

    @cache
    def best(step: int, content: frozenset[int]) -> int:
        if step == len(batches):
            return 0
        batch = set(batches[step])
        here = content | set(batches[step - 1]) if match and step else content
        candidates = sorted(content | batch)
        size = min(capacity, len(candidates))
        # To keep fewer never helps: what is kept does not have to be read.
        choices = combinations(candidates, size)
        return len(batch & here) + max(best(step + 1, frozenset(choice)) for choice in choices)

    return best(0, frozenset())
