"""One enforcer on a broker and a database of its own, which anything is thrown at."""

from collections.abc import Iterator

import pytest

from plimsoll_devkit.enforcer import PARTITIONS
from plimsoll_devkit.platform import Platform, platform
from plimsoll_devkit.stack.private import LoopThread


@pytest.fixture(scope="session")
def running() -> Iterator[Platform]:
    """The platform; its loop is in a thread of its own, because these tests are synchronous and would starve it."""
    thread, context = LoopThread(), platform()
    made = thread.run(context.__aenter__())
    try:
        thread.run(made.enforcer().start())
        thread.run(made.enforcer().ready(PARTITIONS))
        yield made
        assert made.enforcer().runs
        assert "request failed" not in made.enforcer().said(), "an error of ours"
        thread.run(made.audit())
    finally:
        thread.run(context.__aexit__(None, None, None))
        thread.close()
