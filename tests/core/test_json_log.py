import json
import logging
import sys

from gnnscale.core.json_log import JsonFormatter, json_line


def test_a_line_is_an_object() -> None:
    line = json_line('a "b"\n\u2192', level="INFO", logger="gnnscale", time_s=1.5)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:01.500+00:00",
        "level": "INFO",
        "logger": "gnnscale",
        "message": 'a "b"\n\u2192',
    }


def test_a_record_with_an_exception_has_its_trace() -> None:
    try:
        raise ValueError("wrong")
    except ValueError:
        record = logging.getLogger("a").makeRecord(
            *("a", logging.ERROR, "file", 1, "%s", ("why",)), exc_info=sys.exc_info()
        )
    found = json.loads(JsonFormatter().format(record))
    assert (found["level"], found["logger"], found["message"]) == ("ERROR", "a", "why")
    assert found["trace"].endswith("ValueError: wrong")
