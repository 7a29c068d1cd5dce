"""Rates of a card."""

from gnnscale.planner.cuda_spec import CardRates

RATES = CardRates(
    macs_per_s=2e13,
    memory_bandwidth=1e12,
    copy_bandwidth=5e10,
    link=((256.0, 4e10), (64.0, 1e10)),
    sampled_edges_per_s=3e9,
    launch_s=1e-4,
)
