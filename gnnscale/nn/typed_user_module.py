"""A user's own ``torch.nn.Module`` over graphs with types, as a ``TrainableModel``."""

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from gnnscale.core import ConfigError
from gnnscale.core.config.user_code import user_code_error
from gnnscale.graph import GraphSchema
from gnnscale.nn import module_probe
from gnnscale.nn.adapters import DGLBlockBuilder, to_hetero_subgraph
from gnnscale.nn.base import Inputs
from gnnscale.nn.user_constructor import construct_module
from gnnscale.nn.user_module import UserModel, check_parameters, find_form
from gnnscale.ops.products import torch_threads
from gnnscale.sampling import MiniBatch, TypedMiniBatch

_LOG = logging.getLogger(__name__)

#: Arguments of ``forward`` for the sizes of hops, as in PyG's examples of trimming.
_HOPS = ("num_sampled_nodes_dict", "num_sampled_edges_dict")


class TypedUserModel(UserModel):
    """Model that gathers input rows of each vertex type and calls a user's module.

    ``forward(x_dict, edge_index_dict)`` (``pyg_hetero``) or ``forward(blocks, x_dict)`` (``dgl``)
    returns rows by name of the vertex type, or those of the seeds' type alone, the seeds' first.
    """

    def __init__(
        self,
        module: nn.Module,
        form: str,
        schema: GraphSchema,
        widths: tuple[int, int],
        option: str,
    ) -> None:
        """Wrap ``module``, called by the convention ``form``, one of ``TYPED_FORMS``.

        ``widths`` are mean features of an input row and number of classes; ``option`` is
        ``model.module=NAME``, with which error messages begin.
        """
        super().__init__(module, form, widths, option)
        self.schema = schema  #: types of the graph, without numbers of vertices
        self.names = [vertices.name for vertices in schema.vertex_types]  #: of vertex types

    @cached_property
    def _builder(self) -> DGLBlockBuilder:
        return DGLBlockBuilder(self.schema, idtype=torch.int64)

    def input_rows(self, inputs: Inputs) -> dict[str, Tensor]:
        """Return the rows ``[num_input_vertices_t, width_t]`` by name of the vertex type."""
        return dict(zip(self.names, inputs.rows, strict=True))

    def call(self, batch: MiniBatch, x: Any) -> Any:
        """Return the result of the module's ``forward``."""
        assert isinstance(batch, TypedMiniBatch)
        if self.form == "dgl":
            return self.module(self._builder.build_batch(batch), x)
        sampled = to_hetero_subgraph(batch)
        triples = [edge_type.triple for edge_type in self.schema.edge_types]
        keywords = {}
        if all(map(module_probe.takes(self.module), _HOPS)):
            by_type = (self.names, sampled.num_vertices), (triples, sampled.num_edges)
            hops = (dict(zip(*numbers, strict=True)) for numbers in by_type)
            keywords = dict(zip(_HOPS, hops, strict=True))
        return self.module(x, dict(zip(triples, sampled.edge_index, strict=True)), **keywords)

    def seed_rows(self, batch: MiniBatch, out: Any) -> Tensor:
        """Return the seeds' rows of ``out``, type after type; ConfigError: other rows."""
        assert isinstance(batch, TypedMiniBatch)
        numbers = [number for number, size in enumerate(batch.seed_sizes) if size]
        if isinstance(out, Tensor) and len(numbers) == 1:
            out = {self.names[numbers[0]]: out}
        if not isinstance(out, Mapping):
            listed = " and ".join(self.names[number] for number in numbers)
            raise ConfigError(
                f"{self.option}: forward returned a {type(out).__name__}, expected a dictionary "
                f"of rows by vertex type, as seeds are of type {listed}"
            )
        parts = []
        for number in numbers:
            name, num_seeds = self.names[number], batch.seed_sizes[number]
            if name not in out:
                raise ConfigError(
                    f"{self.option}: forward returned rows of {', '.join(out) or 'no type'}, "
                    f"expected rows of {name}, the type of the seeds"
                )
            rows = out[name]
            # Rows of any other number are of another type.
            sizes = [block.src_sizes[number] for block in batch.blocks]
            has_sources = self.form != "dgl" and isinstance(rows, Tensor) and rows.dim()
            if has_sources and len(rows) in sizes:
                rows = rows[:num_seeds]
            of = f" of type {name}"
            parts.append(self.checked(rows, num_seeds, self.num_classes, "forward", of))
        return torch.cat(parts)


@torch_threads(1)  # operations are tiny; on busy cores, threads would wait for one another
def build_typed_user_model(
    code: Any,
    arguments: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    form: str,
    module_name: str,
    schema: GraphSchema,
    targets: Sequence[str],
) -> TypedUserModel:
    """Build a user's module as ``build_user_model`` does, for a graph with the types of ``schema``.

    ``settings["num_features"]`` are features by vertex type; ``targets`` names the types of the
    seeds on which the module is tried, empty: the first type.

    Raises:
        ConfigError: the module cannot be imported, built or called, or does not return logits.
    """
    option = f"model.module={module_name}"
    if form not in ("auto", *module_probe.TYPED_FORMS):
        raise ConfigError(
            f"model.form={form}: expected auto, {' or '.join(module_probe.TYPED_FORMS)}, as "
            "vertices have types"
        )
    module = construct_module(code, arguments, settings, module_name)
    training = module.training
    module.eval()
    names = [vertices.name for vertices in schema.vertex_types]
    input_widths = list(settings["num_features"].values())
    widths = max(round(sum(input_widths) / len(input_widths)), 1), settings["num_classes"]
    numbers = [names.index(target) for target in targets] or [0]
    make = partial(module_probe.tiny_typed_batch, schema, settings["num_layers"], numbers)

    def batches(**added: Any) -> tuple[TypedMiniBatch, dict[str, Tensor]]:
        batch = make(**added)
        return batch, module_probe.tiny_typed_rows(batch, names, input_widths)

    batch, x = batches()
    if form == "auto":
        form = module_probe.likely_forms(module, typed=True)[0]
    model = find_form([TypedUserModel(module, form, schema, widths, option)], batch, x)
    check_parameters(model, batch, x)
    _warn_of_missing_types(model, *batches(only_targets=True))
    model.counted = module_probe.count_cost(module, model.logits, batches, widths)
    model.train(training)
    _LOG.info(f"{option}: called as model.form={model.form}")
    return model


def _warn_of_missing_types(model: TypedUserModel, batch: TypedMiniBatch, x: Any) -> None:
    """Warn if the model fails on ``batch``, whose vertices are of the seeds' types only."""
    try:
        with torch.no_grad():
            model.logits(batch, x)
        return
    except ConfigError as error:
        reason = str(error).removeprefix(f"{model.option}: ")
    except Exception as error:
        reason = str(user_code_error("forward", error))
    _LOG.warning(f"{model.option}: fails on seeds without neighbors of other types: {reason}")
