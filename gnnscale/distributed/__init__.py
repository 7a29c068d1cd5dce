"""Process group of a run: collectives between its workers, heartbeats and messages."""
