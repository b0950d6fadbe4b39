"""What the bench compares with keeps up with the schema, and processor time is counted with that of children."""

import os
import subprocess
import sys

from plimsoll_devkit.bench import effort, naive
from plimsoll_devkit.stack.database import Database
from plimsoll_quota_enforcer.storage.queries import MIGRATIONS, SCHEMA
from plimsoll_runtime import migrations


async def test_one_row_at_a_time_still_fits_the_schema(database: Database) -> None:
    await migrations.migrate(database.owner_dsn, schema=SCHEMA, sources=MIGRATIONS)

    assert await naive.rate(database.dsn(), 3, clients=2, seconds=0.3) > 0


def test_a_child_counts_with_its_parent_and_who_is_gone_counts_nothing() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    before = effort.spent({"us": os.getpid(), "gone": 2**22 + 1})
    with subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        after = effort.spent({"us": os.getpid(), "gone": 2**22 + 1})
        child.communicate(b"\n")

    assert after["us"] - before["us"] >= 0.25
    assert after["gone"] == 0
