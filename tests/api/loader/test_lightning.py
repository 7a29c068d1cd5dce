"""The loader in a Trainer of PyTorch Lightning learns what a plain loop does."""

from typing import Any

import pytest
import torch
from torch.nn import functional

from gnnscale import Graph, NeighborLoader

pytest.importorskip("pytorch_lightning", reason="Lightning is not installed")
pytest.importorskip("torch_geometric", reason="PyG is not installed")

import pytorch_lightning as lightning
from torch_geometric.nn import GraphSAGE

EPOCHS = 2

pytestmark = pytest.mark.filterwarnings(
    # Of Lightning with newer releases of torch, and of a loader without worker processes.
    "ignore:.*LeafSpec",
    "ignore:.*does not have many workers",
    "ignore:.*has `__len__` defined",
    "ignore:.*torch.jit.script",
)


class Sage(lightning.LightningModule):
    def __init__(self, graph: Graph) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.sage = GraphSAGE(graph.num_features, 8, num_layers=2, out_channels=graph.num_classes)
        self.losses: list[float] = []

    def training_step(self, batch: Any, index: int = 0) -> torch.Tensor:
        out = self.sage(batch.x, batch.edge_index)[: batch.batch_size]
        loss = functional.cross_entropy(out, batch.y[: batch.batch_size])
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Vertices(lightning.LightningDataModule):
    def __init__(self, loader: Any) -> None:
        super().__init__()
        self.loader = loader

    def train_dataloader(self) -> Any:
        return self.loader


@pytest.fixture
def trainer(tmp_path) -> Any:
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    return lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        default_root_dir=tmp_path,
        **dict.fromkeys(quiet, False),
    )


def loader_of(graph: Graph, **options: Any) -> NeighborLoader:
    return NeighborLoader(graph, [4, 3], batch_size=16, shuffle=True, seed=3, **options)


def test_a_trainer_learns_what_a_loop_does(random_graph, trainer) -> None:
    graph = random_graph(num_vertices=60)
    expected = Sage(graph)
    optimizer = expected.configure_optimizers()
    loader = loader_of(graph)
    iter(loader)  # A Trainer begins an epoch to see whether it can.
    for _ in range(EPOCHS):
        for batch in loader:
            optimizer.zero_grad()
            expected.training_step(batch).backward()
            optimizer.step()
    model = Sage(graph)
    trainer.fit(model, datamodule=Vertices(loader_of(graph, num_workers=3)))
    assert len(model.losses) == EPOCHS * len(loader) > EPOCHS
    assert model.losses == pytest.approx(expected.losses, rel=1e-6)
    assert trainer.global_step == len(model.losses)
