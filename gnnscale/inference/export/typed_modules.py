"""Programs of models over graphs with types: with modules of PyG, or with gnnscale's own."""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from gnnscale.core import ConfigError, brief
from gnnscale.graph import GraphSchema, InputTypes
from gnnscale.inference.export.module_export import NORM_MODULES, literal
from gnnscale.nn import TypedGNN, TypedModel
from gnnscale.nn.typed.attention import HGTLayer, RGATLayer
from gnnscale.nn.typed.layer import TypedLayer
from gnnscale.nn.typed.pyg_weights import to_pyg
from gnnscale.nn.typed.relational import RGCNLayer, RSAGELayer

_OWN = """\
from gnnscale.graph import GraphSchema
from gnnscale.nn import {name}
from safetensors.torch import load_file

schema = GraphSchema.of({types}, {edges})
options = {config}
model = options.build_typed(schema=schema, widths={widths}, num_classes={num_classes}{edge_widths})
model.load_state_dict(load_file({file}))
"""

#: Expressions of encoders from ``width`` features.
_ENCODERS = {
    "linear": "nn.Linear(width, {hidden})",
    "normalized": (
        "nn.Sequential(nn.Linear(width, {hidden}), nn.LayerNorm({hidden}), nn.ReLU(), "
        "nn.Linear({hidden}, {hidden}))"
    ),
}

_PYG = """\
{torch}\
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional
from torch_geometric.nn import {imports}

widths = {widths}
edge_types = {edges}
{edge_dims}

{before}class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoders = nn.ModuleList({encoder} for width in widths.values())
        self.convs = nn.ModuleList(
            [
{convs}
            ]
        )
        self.norms = nn.ModuleList(
            nn.ModuleList({norm} for _ in widths) for _ in range({num_norms})
        )
        self.outputs = nn.ModuleList({outputs})

    def forward(self, x_dict, edge_index_dict{attr}):
        x = {{name: layer(x_dict[name]){first} for name, layer in zip(widths, self.encoders)}}
        for index, conv in enumerate(self.convs):
            out = {call}
            if index < len(self.norms):
{residual}\
                out = {{name: norm(out[name]) for name, norm in zip(widths, self.norms[index])}}
                out = {{
                    name: functional.dropout(rows{between}, {dropout}, self.training)
                    for name, rows in out.items()
                }}
            x = out
        return {last}


model = {name}()
model.load_state_dict(load_file({file}))
logits = model.eval()(data.x_dict, data.edge_index_dict{data_attr}){logits}
"""

_MERGED = """\
def merged(conv, x, edge_index_dict):
    \"\"\"RGCNConv over all types at once, where self-edges follow as further edge types.\"\"\"
    sizes, first, total = [len(x[name]) for name in widths], {}, 0
    for name, size in zip(widths, sizes):
        first[name], total = total, total + size
    ends, types = [torch.arange(total).expand(2, -1)], []
    types.append(len(edge_types) + torch.arange(len(widths)).repeat_interleave(torch.tensor(sizes)))
    for number, edge in enumerate(edge_types):
        edge_index = edge_index_dict[edge]
        ends.append(edge_index + torch.tensor([[first[edge[0]]], [first[edge[2]]]]))
        types.append(torch.full((edge_index.shape[1],), number))
    out = conv(torch.cat([x[name] for name in widths]), torch.cat(ends, 1), torch.cat(types))
    return dict(zip(widths, out.split(sizes)))


"""
_ROWS_NOTE = (
    "x_dict has rows of every type, as graph.features.matrices[i].rows with "
    "g = gnnscale.load(DIR).graph, also of types without features"
)


@dataclass(frozen=True, kw_only=True)
class TypedProgram:
    """Program that builds a trained model over graphs with types, and loads its weights."""

    config: TypedModel  #: options of the model
    model: TypedGNN
    types: InputTypes  #: types of the training graph
    file: Path  #: the weights
    #: number of outputs of each vertex type, if several were trained
    targets: Mapping[str, int] = field(default_factory=dict)

    @property
    def _schema(self) -> GraphSchema:
        return self.types.schema

    @property
    def _edge_widths(self) -> tuple[int, ...]:
        """Number of features of each edge type that the model reads; empty: it reads none."""
        return self.types.edge_widths if self.model.uses_edge_features else ()

    def gnnscale_weights(self) -> tuple[dict[str, Tensor], str, str]:
        """Return the weights by gnnscale's names, the program that loads them, and no note."""
        text = _OWN.format(
            name=self.config.name,
            types=ascii(dict.fromkeys(self.types.widths, 0)),
            edges=ascii(self.types.edges),
            config=self.config,
            widths=tuple(self.model.input_widths),
            num_classes=self.model.widths[-1],
            edge_widths=f", edge_widths={self._edge_widths}" if self._edge_widths else "",
            file=literal(self.file),
        )
        return self.model.state_dict(), text, self._note

    def pyg_weights(self, *, weighted: bool) -> tuple[dict[str, Tensor], str, str]:
        """Return the weights by the names of PyG's modules, a program that loads them, and a note.

        ``weighted`` says whether edges of the graph have weights. ConfigError: the model reads
        them, no edge type ends at a vertex type, or PyG is not installed.
        """
        if importlib.util.find_spec("torch_geometric") is None:
            raise ConfigError(
                f"format=pyg: expected PyG, whose modules get the weights of {self.config.name}; "
                "pip install '.[pyg]', or format=safetensors"
            )
        self._check(weighted=weighted)
        model, layers = self.model, self._layers
        module: Any = nn.Module()
        module.encoders, module.norms, module.outputs = model.encoders, model.norms, model.outputs
        module.convs = nn.ModuleList(to_pyg(layer, self._schema) for layer in layers)
        weights = {key: value.contiguous() for key, value in module.state_dict().items()}
        return weights, self._pyg_program(), "; ".join(filter(None, (_ROWS_NOTE, self._note)))

    @property
    def _note(self) -> str:
        """Note on the outputs of several types; empty for one."""
        widths = (f"{width} of {name}" for name, width in self.targets.items())
        return f"logits are the first columns: {', '.join(widths)}" if self.targets else ""

    @property
    def _layers(self) -> list[TypedLayer]:
        layers: Any = self.model.layers
        return list(layers)

    def _check(self, *, weighted: bool) -> None:
        name = self.config.name
        if weighted and self.model.uses_edge_weights:
            raise ConfigError(
                f"format=pyg: layers of {name} that read weights of edges have no counterpart "
                "there; format=safetensors writes them"
            )
        dotted = [text for text in self.types.widths if "." in text]
        if dotted and isinstance(self._layers[0], HGTLayer):
            raise ConfigError(
                f"format=pyg: expected vertex types without a dot, as HGTConv takes no others, got "
                f"{brief(dotted[0])}; format=safetensors writes the weights"
            )
        bare = [
            vertices.name
            for vertices, incoming in zip(
                self._schema.vertex_types, self._layers[0].incoming, strict=True
            )
            if not incoming
        ]
        if bare:
            raise ConfigError(
                f"format=pyg: expected an edge type that ends at {brief(bare[0])}, as PyG's layers "
                "have no rows of other vertex types; format=safetensors writes the weights"
            )

    def _pyg_program(self) -> str:
        config, layers = self.config, self._layers
        is_rgcn = isinstance(layers[0], RGCNLayer)
        reads_edges = bool(self._edge_widths)
        convs = [_conv(layer) for layer in layers]
        added = "                out = {name: out[name] + x[name] for name in widths}\n"
        output, last = "", "x"
        if self.model.outputs:
            output = f"nn.Linear({config.hidden}, {self.model.widths[-1]}) for _ in widths"
            last = "{name: layer(x[name]) for name, layer in zip(widths, self.outputs)}"
        target = self.types.target or next(iter(self.types.widths))
        return _PYG.format(
            # ReLU follows the encoders, or the layers.
            first=".relu()" if self.config.activates_inputs else "",
            between="" if self.config.activates_inputs else ".relu()",
            imports=", ".join(sorted({part for _, names in convs for part in names})),
            widths=ascii(dict(zip(self.types.widths, self.model.input_widths, strict=True))),
            edges=ascii(self.types.edges),
            torch="import torch\n" if is_rgcn else "",
            before=_MERGED if is_rgcn else "",
            name=config.name,
            encoder=_ENCODERS[config.encoder].format(hidden=config.hidden),
            convs="\n".join(f"                {text}," for text, _ in convs),
            norm=NORM_MODULES[config.norm].replace("width", str(config.hidden)),
            num_norms=len(self.model.norms),
            outputs=output,
            call=f"{'merged(conv, x' if is_rgcn else 'conv(x'}, edge_index_dict"
            f"{', edge_attr_dict=edge_attr_dict)' if reads_edges else ')'}",
            edge_dims=self._edge_dims() if reads_edges else "",
            attr=", edge_attr_dict" if reads_edges else "",
            data_attr=", data.edge_attr_dict" if reads_edges else "",
            residual=added if config.residual else "",
            dropout=config.dropout,
            last=last,
            file=literal(self.file),
            logits="" if self.targets else f"[{target!a}]",
        )

    def _edge_dims(self) -> str:
        pairs = zip(self.types.edges, self._edge_widths, strict=True)
        dims = {tuple(edge): width or None for edge, width in pairs}
        return f"edge_dims = {dims!a}\n"


def _conv(layer: TypedLayer) -> tuple[str, list[str]]:
    """Return the expression of PyG's module of ``layer``, and the classes that it uses."""
    width, width_out = layer.width_in, layer.width_out
    if isinstance(layer, RGCNLayer):
        num_types = len(layer.sources) + layer.num_types
        bases = None if layer.coefficients is None else len(layer.weight) + layer.num_types
        return (
            f"RGCNConv({width}, {width_out}, {num_types}, num_bases={bases}, root_weight=False)",
            ["RGCNConv"],
        )
    if isinstance(layer, HGTLayer):
        return (
            f"HGTConv({width}, {width_out}, (list(widths), edge_types), heads={layer.num_heads})",
            ["HGTConv"],
        )
    if isinstance(layer, RSAGELayer):
        aggregator = ', aggr="sum"' if layer.sums else ""
        conv = f"SAGEConv({(width, width)}, {width_out}{aggregator})"
    else:
        assert isinstance(layer, RGATLayer)
        conv = f"GATConv({(width, width)}, {layer.width}, heads={layer.num_heads}, "
        edges = "edge_dim=edge_dims[edge], " if layer.uses_edge_features else ""
        conv += f"concat={not layer.average}, {edges}add_self_loops=False, residual=True)"
    text = f'HeteroConv({{edge: {conv} for edge in edge_types}}, aggr="{layer.combine}")'
    return text, ["HeteroConv", conv.partition("(")[0]]
