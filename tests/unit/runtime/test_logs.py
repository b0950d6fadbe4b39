import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from plimsoll_runtime import logs


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Logging is process-wide state: put it back, pytest's own handlers included."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_not_a_terminal_gets_json_from_ours_and_from_libraries() -> None:
    out = io.StringIO()
    logs.configure(service="quota-enforcer", instance=2, stream=out)

    structlog.get_logger().info("started", partitions=12)
    logging.getLogger("aiokafka.client").error("cannot reach %s", "broker")

    ours, theirs = lines(out)
    assert ours["message"] == "started"
    assert (ours["service"], ours["instance"], ours["level"]) == ("quota-enforcer", 2, "info")
    assert ours["partitions"] == 12
    assert str(ours["time"]).endswith("Z")
    assert theirs["message"] == "cannot reach broker"
    assert (theirs["service"], theirs["logger"]) == ("quota-enforcer", "aiokafka.client")


def test_a_library_with_a_handler_of_its_own_writes_through_ours() -> None:
    theirs = io.StringIO()
    library = logging.getLogger("library.that.brings.its.own")
    library.addHandler(logging.StreamHandler(theirs))
    library.propagate = False
    out = io.StringIO()
    logs.configure(service="x", stream=out)

    library.warning("starting")

    assert theirs.getvalue() == ""
    assert [line["message"] for line in lines(out)] == ["starting"]


def test_a_terminal_gets_a_line_for_people() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    logs.configure(service="quota-enforcer", stream=out)

    structlog.get_logger().warning("partition paused", partition=3)

    assert not out.getvalue().startswith("{")
    assert "partition paused" in out.getvalue()


def test_an_exception_is_one_json_line_with_its_traceback() -> None:
    out = io.StringIO()
    logs.configure(service="x", stream=out)

    try:
        [].pop()
    except IndexError:
        structlog.get_logger().exception("failed")
        logging.getLogger("library").exception("failed too")

    ours, theirs = lines(out)
    assert "IndexError: pop from empty list" in str(ours["exception"])
    assert "IndexError: pop from empty list" in str(theirs["exception"])


def test_levels_below_the_threshold_are_dropped() -> None:
    out = io.StringIO()
    logs.configure(service="x", level="warning", stream=out)

    structlog.get_logger().info("quiet")
    logging.getLogger("library").info("quiet too")

    assert lines(out) == []


def test_a_flood_from_a_library_is_one_line_and_ours_is_untouched() -> None:
    out = io.StringIO()
    logs.configure(service="x", stream=out)

    for attempt in range(500):
        logging.getLogger("aiokafka.conn").error("Unable to connect to node %s", attempt)
        structlog.get_logger().info("ours", attempt=attempt)

    written = lines(out)
    assert sum(line.get("logger") == "aiokafka.conn" for line in written) == 1
    assert sum(line["message"] == "ours" for line in written) == 500


def test_the_next_line_after_the_pause_says_how_many_were_held_back() -> None:
    now = [0.0]
    once = logs.OncePerWhile(clock=lambda: now[0])

    def offer(template: str, level: int = logging.ERROR) -> logging.LogRecord | None:
        record = logging.LogRecord("lib", level, "", 0, template, (), None)
        return record if once.filter(record) else None

    assert offer("a %s") is not None
    assert [offer("a %s") for _ in range(7)] == [None] * 7
    assert offer("a %s", logging.WARNING) is not None  # another level is another message
    assert offer("b %s") is not None
    now[0] = logs.QUIET_SECONDS
    again = offer("a %s")
    assert again is not None
    assert vars(again)["suppressed"] == 7


def test_memory_for_messages_is_bounded() -> None:
    once = logs.OncePerWhile(clock=lambda: 0.0)

    for number in range(3 * logs.REMEMBERED_MESSAGES):
        once.filter(logging.LogRecord("lib", logging.ERROR, "", 0, f"unique {number}", (), None))

    assert len(once._seen) == logs.REMEMBERED_MESSAGES
