"""One worker process per device: started, listened to and ended."""
