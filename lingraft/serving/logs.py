"""The log: one JSON object a line on standard error, in ASCII, without what was asked or answered.

An exception's own words may quote a text, so that only its type and where it came from are logged.
"""

import asyncio
import json
import logging
import logging.config
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

LOGGER = logging.getLogger("lingraft.serving")
_FIELDS = "told"


class JsonLines(logging.Formatter):
    """Formats a record as one line; what JSON escapes cannot break lines or turn the direction of writing."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line |= getattr(record, _FIELDS, {})
        if record.exc_info and record.exc_info[1]:
            line |= _where(record.exc_info[1])
        return json.dumps(line)


def _where(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    return {
        "error": type(error).__name__,
        "trace": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }


def log_event(event: str, level: int = logging.INFO, error: BaseException | None = None, **told: object) -> None:
    """Log an event with what is known of it."""
    LOGGER.log(level, event, exc_info=error, extra={_FIELDS: told})


def log_request(path: str, status: int | str, began_s: float, told: Mapping[str, Any]) -> None:
    """Log a request over any transport, which began at a reading of the monotonic clock."""
    log_event("request", path=path, status=status, elapsed_ms=round(1000 * (time.monotonic() - began_s), 3), **told)


def answer_fields(task: str, languages: Sequence[str]) -> dict[str, object]:
    """What the log says of an answer, whose texts are in these languages."""
    return {"task": task, "texts": len(languages), "languages": sorted(set(languages))}


def configure() -> None:
    """Have everything in this process log so; uvicorn's line a request, which has its query, is left out for ours."""
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"json": {"()": JsonLines}},
            "handlers": {"json": {"class": "logging.StreamHandler", "formatter": "json", "stream": sys.stderr}},
            "root": {"handlers": ["json"], "level": "WARNING"},
            "loggers": {
                LOGGER.name: {"level": "INFO"},
                # With a handler of its own, kserve does not put its format in place of ours.
                "kserve": {"handlers": ["json"], "level": "WARNING", "propagate": False},
                "uvicorn": {"level": "WARNING"},
                "uvicorn.access": {"level": "CRITICAL"},
            },
        }
    )
    logging.captureWarnings(True)


def log_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What asyncio tells of a task that nobody waited for; its own words quote the exception."""
    log_event("event loop", logging.ERROR, context.get("exception"))
