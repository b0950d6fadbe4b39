"""How does a process speak to its operators: one line an event, human on a terminal, JSON elsewhere."""

import logging
import sys
import time
from collections.abc import Callable
from typing import Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

Format = Literal["auto", "json", "console"]

QUIET_SECONDS = 10.0
"""The same message of the same library is written at most once in this many seconds."""

REMEMBERED_MESSAGES = 512
"""How many different library messages are told apart; above it the oldest is forgotten."""


class OncePerWhile(logging.Filter):
    """Lets one library message through per template and 10 s, with the number that was held back.

    aiokafka writes hundreds of lines a minute while a broker is away; they all say one thing. Our own
    loggers do not pass here: what we write, we mean.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether the record is written; a written one carries `suppressed`."""
        key = (record.name, record.levelno, str(record.msg))
        now = self._clock()
        since, held_back = self._seen.get(key, (None, 0))
        if since is not None and now - since < QUIET_SECONDS:
            self._seen[key] = (since, held_back + 1)
            return False
        self._seen.pop(key, None)  # re-inserted as the newest, so the first key is the oldest
        self._seen[key] = (now, 0)
        if len(self._seen) > REMEMBERED_MESSAGES:
            del self._seen[next(iter(self._seen))]
        record.suppressed = held_back
        return True


def configure(
    *,
    service: str,
    instance: int = 0,
    format: Format = "auto",  # noqa: A002 - the setting's name
    level: str = "info",
    stream: TextIO | None = None,
) -> None:
    """Set up structlog and route the standard library's logging through the same rendering.

    Args:
        service: name written on every JSON line.
        instance: ordinal of this replica, written on every JSON line.
        format: `auto` is human on a terminal and JSON elsewhere.
        level: lowest level written: debug, info, warning or error.
        stream: where to; standard output when not given.
    """
    out = stream or sys.stdout
    human = format == "console" or (format == "auto" and out.isatty())
    threshold = logging.getLevelNamesMapping()[level.upper()]

    def identify(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {"service": service, "instance": instance, **event}

    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    rendering: list[Processor] = (
        [structlog.dev.ConsoleRenderer(colors=out.isatty(), timestamp_key="time")]
        if human
        else [
            identify,
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(default=str),
        ]
    )
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(file=out),
    )
    _route_standard_logging(out, threshold, shared, rendering)


def _route_standard_logging(out: TextIO, threshold: int, shared: list[Processor], rendering: list[Processor]) -> None:
    handler = logging.StreamHandler(out)
    handler.addFilter(OncePerWhile())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared, _add_suppressed],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(threshold)
    # Some libraries (FastStream) bring handlers of their own at import; one line a message, in one form, is enough.
    for logger in list(root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger) and logger.handlers:
            logger.handlers.clear()
            logger.propagate = True
    logging.captureWarnings(capture=True)


def _add_suppressed(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    held_back = getattr(event["_record"], "suppressed", 0)
    return {**event, "suppressed": held_back} if held_back else event
