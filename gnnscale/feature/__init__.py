"""Feature stores: where rows of features lie, and how they are read."""
