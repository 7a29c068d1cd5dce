"""Reader of a tiered store for steps whose input vertices repeat."""

from dataclasses import replace

from gnnscale.core import Array
from gnnscale.features.repeats import RepeatedSteps
from gnnscale.features.tiered.store import ReadyRows, TieredReader


class DistinctReader(TieredReader):
    """Reader that expects the distinct rows of each step of another reader once.

    A row that several inputs of a step read takes one slot.
    """

    def __init__(self, reader: TieredReader) -> None:
        """Read by ``reader``, whose steps have distinct vertices."""
        self._reader = reader
        self._steps = RepeatedSteps()
        self.lead, self.source = reader.lead, reader.source

    def expect(self, vertices: Array | None) -> None:
        """Append the next step's ``vertices`` ``[n]``, which may repeat. None: it reads no rows."""
        self._reader.expect(self._steps.announce(vertices))

    def end(self) -> None:
        """Announce that no step follows, so that the last steps need not wait for later steps."""
        self._reader.end()

    def ready(self, vertices: Array) -> ReadyRows:
        """Wait for the rows of ``vertices``, the next step's array, and return their slots."""
        rows = self._steps.take(vertices)
        if rows is None:
            return self._reader.ready(vertices)
        ready = self._reader.ready(rows.vertices)
        return replace(ready, slots=ready.slots[rows.positions])

    def served(self, ready: ReadyRows) -> None:
        """Free the slots of the step whose rows were ``ready``."""
        self._reader.served(ready)

    def read(self, vertices: Array, rows: Array) -> None:
        """Read the row of ``vertices[i]`` into ``rows[i]``, in its stored type, and wait."""
        self._reader.read(vertices, rows)

    def close(self) -> None:
        """Wait for pending reads, and release all resources."""
        self._reader.close()
