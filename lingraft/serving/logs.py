"""Log of the server: one JSON object per line on standard error, in ASCII, without texts of requests or responses.

The message of an exception may quote a text, so that only its type and traceback are logged.
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
_FIELDS = "fields"


class JsonLines(logging.Formatter):
    """Formatter that writes a record as one line of JSON in ASCII, so that values cannot break lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line of JSON."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line |= getattr(record, _FIELDS, {})
        if record.exc_info and (error := record.exc_info[1]):
            frames = traceback.extract_tb(error.__traceback__)
            line["error"] = type(error).__name__
            line["trace"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return json.dumps(line)


def log_event(event: str, level: int = logging.INFO, error: BaseException | None = None, **fields: object) -> None:
    """Log an event with its fields."""
    LOGGER.log(level, event, exc_info=error, extra={_FIELDS: fields})


def log_request(path: str, status: int | str, began_s: float, fields: Mapping[str, Any]) -> None:
    """Log a request over any transport; `began_s` is its start by the monotonic clock."""
    log_event("request", path=path, status=status, elapsed_ms=round(1000 * (time.monotonic() - began_s), 3), **fields)


def answer_fields(task: str, languages: Sequence[str]) -> dict[str, object]:
    """Return the log fields of an answered request with texts in these languages."""
    return {"task": task, "texts": len(languages), "languages": sorted(set(languages))}


def configure() -> None:
    """Configure logging for the whole process; uvicorn's access log, which shows query strings, is replaced by ours."""
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"json": {"()": JsonLines}},
            "handlers": {"json": {"class": "logging.StreamHandler", "formatter": "json", "stream": sys.stderr}},
            "root": {"handlers": ["json"], "level": "WARNING"},
            "loggers": {
                LOGGER.name: {"level": "INFO"},
                # kserve does not replace the format of a logger with a handler of its own.
                "kserve": {"handlers": ["json"], "level": "WARNING", "propagate": False},
                "uvicorn": {"level": "WARNING"},
                "uvicorn.access": {"level": "CRITICAL"},
            },
        }
    )
    logging.captureWarnings(True)


def log_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an exception that nobody awaited, without asyncio's message, which quotes it."""
    log_event("event loop", logging.ERROR, context.get("exception"))
