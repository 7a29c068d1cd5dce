"""Log lines as JSON objects, one a line."""

import json
import logging
from datetime import datetime, timezone


def json_line(message: str, *, level: str, logger: str, time_s: float, trace: str = "") -> str:
    """Return a JSON object of one line; ``time_s`` are seconds since 1970, ``time`` is UTC."""
    time = datetime.fromtimestamp(time_s, timezone.utc).isoformat(timespec="milliseconds")
    fields = {"time": time, "level": level, "logger": logger, "message": message}
    return json.dumps(fields | ({"trace": trace} if trace else {}))


class JsonFormatter(logging.Formatter):
    """Formatter of log records as JSON objects."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as ``json_line`` does, with the trace of its exception."""
        return json_line(
            record.getMessage(),
            level=record.levelname,
            logger=record.name,
            time_s=record.created,
            trace=self.formatException(record.exc_info) if record.exc_info else "",
        )
