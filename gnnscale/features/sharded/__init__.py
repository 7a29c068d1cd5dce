"""Feature rows sharded across machines."""
