"""Cache plans on disk: what decides them, where they are kept, and how they are read."""
