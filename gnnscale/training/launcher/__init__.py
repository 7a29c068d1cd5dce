"""Launching of one worker process per device, messages of workers, and failure detection."""
