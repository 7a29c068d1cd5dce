"""Class paths in stored files: a class that moves keeps the path that it was first stored by."""

#: Modules of gnnscale in release 0.2 and today, and their classes. Files hold the first path.
_MOVED = (
    ("dataset.base", "data.base", "ExistingStore"),
    ("dataset.readers.arrays", "data.readers.arrays", "Arrays"),
    ("dataset.readers.csr", "data.structure_only", "Csr"),
    ("dataset.readers.gnn_benchmark", "data.readers.npz_benchmarks", "GnnBenchmark"),
    ("dataset.readers.graphsaint", "data.readers.graphsaint", "GraphSaint"),
    ("dataset.readers.heterophilous", "data.readers.npz_benchmarks", "Heterophilous"),
    ("dataset.readers.musae", "data.readers.musae", "Musae"),
    ("dataset.readers.ogb", "data.readers.ogb", "Mag240m Ogb"),
    ("dataset.readers.planetoid", "data.readers.planetoid", "Planetoid"),
    ("dataset.readers.snap", "data.readers.edge_list", "Snap"),
    ("dataset.readers.tables", "data.readers.tables", "Tables"),
    ("dataset.synthetic", "data.synthetic", "PlantedPartition RMat"),
    (
        "feature.options",
        "features.options",
        "DegreeFeaturesConfig DiskFeaturesConfig HostFeaturesConfig LearnedFeaturesConfig "
        "PreaggregatedFeaturesConfig ProjectionFeaturesConfig SharedFeaturesConfig",
    ),
    ("model.custom", "nn.scatter_gather", "Custom"),
    ("model.layer", "nn.conv.linear", "GCNLayer GINLayer HopLayer SAGELayer"),
    (
        "model.losses",
        "nn.losses",
        "AutoLoss BinaryCrossEntropy CrossEntropy CustomLoss MeanSquaredError",
    ),
    ("model.made_rows", "nn.transform_first", "ProjectedLayer"),
    ("model.options", "nn.options", "APPNP CustomModel GAT GATv2 GCN GIN GraphSAGE SGC"),
    ("optimizer", "nn.optim.options", "Adam AdamW Sgd"),
    ("partition.by_id", "partition.simple", "Given Hash Random Range"),
    ("partition.p3", "partition.simple", "P3"),
    ("partition.partitioner", "partition.base", "NoPartitioner"),
    ("plan.board", "planner.fpga_board", "Board"),
    ("plan.device", "planner.device_spec", "Efficiency"),
    ("plan.device_plan", "planner.device_plan", "AllGpusConfig CpuEachConfig DevicePlanConfig"),
    ("plan.platform", "planner.platform", "Identity Platform PlatformConfig ThisGpu ThisMachine"),
    ("plan.platform", "planner.processor", "Processor Rates Sharing"),
    ("plan.resources.die", "planner.fpga_board", "Die"),
    ("plan.resources.quantities", "planner.fpga_board", "Resources"),
    ("runtime.settings", "run.runtime_config", "RuntimeConfig UpdateConfig"),
    ("runtime.task.options", "run.tasks.options", "EdgePrediction LinkPrediction VertexPrediction"),
    ("sampler.labor", "sampling.labor", "LaborSampling"),
    ("sampler.layerwise", "sampling.layerwise", "LayerSampling"),
    ("sampler.seed_order", "sampling.seed_order", "Shuffled"),
    ("sampler.neighbor", "sampling.neighbor", "NeighborSampling WeightedSampling"),
)

#: Classes that have another name today, by the name of release 0.2.
_RENAMED = {"Given": "FromFile", "Identity": "MachineIdentity"}

_CURRENT = {
    f"gnnscale.{stored}.{name}": f"gnnscale.{module}.{_RENAMED.get(name, name)}"
    for stored, module, names in _MOVED
    for name in names.split()
}
_STORED = {current: stored for stored, current in _CURRENT.items()}


def current_path(path: str) -> str:
    """Return the present path of a class that a stored file names by ``path``, even if it moved."""
    return _CURRENT.get(path, path)


def stored_path(cls: type[object]) -> str:
    """Return the path by which stored files and their identities name ``cls``, even if it moved."""
    path = f"{cls.__module__}.{cls.__qualname__}"
    return _STORED.get(path, path)
