"""Base class of layers over blocks with types."""

from collections.abc import Sequence

from torch import Tensor, nn

from gnnscale.graph import GraphSchema
from gnnscale.nn.cost import LayerCost
from gnnscale.sampling import TypedBlock


class TypedLayer(nn.Module):
    """One layer over the vertices of all types: new rows of destinations, from rows of sources.

    Types and edge types are numbers, their positions in the schema. A type at which no edge type
    ends has only the term of its own rows.
    """

    #: Whether edge weights change the output.
    uses_edge_weights: bool = True
    #: Whether features of edges change the output.
    uses_edge_features: bool = False
    num_heads: int = 0  #: heads of attention; 0: neighbors are aggregated by means

    def __init__(self, schema: GraphSchema, width_in: int, width_out: int) -> None:
        """Create a layer from rows of ``width_in`` to rows of ``width_out`` features."""
        super().__init__()
        self.width_in, self.width_out = width_in, width_out
        self.num_types = len(schema.vertex_types)  #: number of vertex types
        self.sources: tuple[int, ...] = tuple(schema.sources.tolist())  #: by edge type
        #: edge types that end at each vertex type
        self.incoming: tuple[tuple[int, ...], ...] = tuple(
            tuple((schema.destinations == vertex_type).nonzero()[0].tolist())
            for vertex_type in range(self.num_types)
        )

    def active(self, vertex_type: int, block: TypedBlock) -> list[int]:
        """Return the edge types that end at ``vertex_type`` and have edges in ``block``."""
        edge_types = self.incoming[vertex_type] if block.dst_sizes[vertex_type] else ()
        return [number for number in edge_types if block.relations[number].num_edges]

    @property
    def cost(self) -> LayerCost:
        """Cost of the layer, as if each vertex type had the mean number of incoming edge types.

        One product follows the aggregation, or with ``num_heads`` of attention precedes it.
        """
        incoming = -(-len(self.sources) // self.num_types)
        product = ((1 + incoming) * self.width_in, self.width_out)
        if self.num_heads:
            product = (self.width_in, incoming * self.width_out)
        return LayerCost(
            width_in=self.width_in,
            width_out=self.width_out,
            products=(product,),
            attention=self.num_heads,
        )

    def forward(self, rows: Sequence[Tensor], block: TypedBlock) -> list[Tensor]:
        """Return the new rows of the destinations of each vertex type.

        Subclasses define it.

        Args:
            rows: by vertex type ``[block.src_sizes[t], width_in]`` float32, destinations first.
            block: the edges, sampled or all; types may lack vertices, edge types may lack edges.

        Returns:
            By vertex type ``[block.dst_sizes[t], width_out]`` float32.
        """
        raise NotImplementedError
