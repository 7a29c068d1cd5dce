"""Feature rows that are sharded among machines."""
