"""Times of the vertices and edges of tables by type."""

from collections.abc import Mapping, Sequence

from gnnscale.core import Int64Array
from gnnscale.data.readers.typed.edge_reading import EdgeTable, ReadEdges
from gnnscale.data.typed_times import TypedTimes
from gnnscale.graph import GraphSchema, TimeUnit

#: By vertex type the times of the rows of its table, and their unit; None: rows have no times.
RowTimes = Mapping[str, tuple[Int64Array, TimeUnit] | None]


def own_edge_times(
    tables: Sequence[EdgeTable], read: Sequence[ReadEdges], of_rows: RowTimes
) -> list[Int64Array | None]:
    """Return by table the edges' own times ``[num_edges]``. None: they have none.

    An edge of a foreign key appears when its row does, and so does its reverse.
    """
    times: list[Int64Array | None] = []
    for table, edges in zip(tables, read, strict=True):
        rows = of_rows.get(table.edge_type.source) if table.source is None else None
        times.append(edges.times if rows is None else rows[0][edges.src])
    return times


def times_of_types(
    schema: GraphSchema,
    of_rows: RowTimes,
    tables: Sequence[EdgeTable],
    own_times: Sequence[Int64Array | None],
) -> TypedTimes | None:
    """Return the times of the types of ``schema``. None: no table has times.

    ``own_times`` are those of the edges by edge type.
    """
    of_vertices = [of_rows.get(vertices.name) for vertices in schema.vertex_types]
    units = [rows[1] for rows in of_vertices if rows is not None]
    units += [table.time.unit for table in tables if table.time is not None]
    if not units:
        return None
    vertices = [None if rows is None else rows[0] for rows in of_vertices]
    return TypedTimes(unit=units[0], vertices=vertices, edges=own_times)
