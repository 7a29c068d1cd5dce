"""A LightningModule over PyG, with a LightningDataModule of gnnscale's loaders.

python examples/lightning_pyg.py
"""

import numpy as np
import pytorch_lightning as lightning
import torch
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

from gnnscale import Graph, NeighborLoader
from gnnscale.data import PlantedPartition


class Vertices(lightning.LightningDataModule):
    """Mini-batches of a graph's split, in PyG's form."""

    def __init__(self, graph: Graph, batch_size: int = 256) -> None:
        super().__init__()
        self.graph, self.batch_size = graph, batch_size

    def _loader(self, vertices: np.ndarray, shuffle: bool = False) -> NeighborLoader:
        return NeighborLoader(
            self.graph, [10, 10], vertices, batch_size=self.batch_size, shuffle=shuffle
        )

    def train_dataloader(self) -> NeighborLoader:
        return self._loader(self.graph.train_idx, shuffle=True)

    def val_dataloader(self) -> NeighborLoader:
        return self._loader(self.graph.valid_idx)

    def test_dataloader(self) -> NeighborLoader:
        return self._loader(self.graph.test_idx)


class Sage(lightning.LightningModule):
    """PyG's GraphSAGE; the seeds of a batch are its first vertices."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.sage = GraphSAGE(num_features, 64, num_layers=2, out_channels=num_classes)

    def _seeds(self, batch: Data) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.sage(batch.x, batch.edge_index)
        return out[: batch.batch_size], batch.y[: batch.batch_size]

    def training_step(self, batch: Data, index: int) -> torch.Tensor:
        return functional.cross_entropy(*self._seeds(batch))

    def validation_step(self, batch: Data, index: int) -> None:
        self._measure("valid_accuracy", batch)

    def test_step(self, batch: Data, index: int) -> None:
        self._measure("test_accuracy", batch)

    def _measure(self, name: str, batch: Data) -> None:
        out, labels = self._seeds(batch)
        right = (out.argmax(dim=1) == labels).float().mean()
        # Lightning asks a batch for its size otherwise, which has more vertices than seeds.
        self.log(name, right, batch_size=batch.batch_size)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main(num_epochs: int = 5) -> float:
    torch.manual_seed(0)
    graph = PlantedPartition(
        name="example", num_vertices=10_000, num_edges=100_000, num_classes=8
    ).open()
    trainer = lightning.Trainer(
        max_epochs=num_epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model, data = Sage(graph.num_features, graph.num_classes), Vertices(graph)
    trainer.fit(model, datamodule=data)
    (found,) = trainer.test(model, datamodule=data, verbose=False)
    print(f"test accuracy {found['test_accuracy']:.1%}")
    return found["test_accuracy"]


if __name__ == "__main__":
    main()
