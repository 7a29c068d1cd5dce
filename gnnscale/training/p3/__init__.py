"""Push-pull parallelism (P3): a first layer split over the devices by feature columns."""
