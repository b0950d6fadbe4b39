"""The engine end to end, on a real broker and a real database."""

import json

from plimsoll_devkit.workbench import Bench, eventually


async def test_what_is_produced_is_applied_once(bench: Bench) -> None:
    await bench.start()

    for key in ("a", "b", "c"):
        await bench.add(key, 100)
    await bench.sums_to(300)

    assert await bench.rows() == dict.fromkeys(("a", "b", "c"), (100, 100, 0))


async def test_a_restart_goes_on_where_the_database_is(bench: Bench) -> None:
    engine = await bench.start()
    await bench.add("a", 10)
    await bench.sums_to(10)
    await bench.stop(engine)

    await bench.add("a", 10)
    await bench.start()
    await bench.sums_to(20)

    assert await bench.rows() == {"a": (20, 20, 0)}


async def test_replies_follow_the_commit_and_carry_its_result(bench: Bench) -> None:
    out = await bench.make_topic(f"quota.replies.{bench.name}")
    await bench.start()

    await bench.add("a", 3, topic=bench.requests, headers=[("reply_to", out.encode())])

    answers = [json.loads(record.value)["total"] for record in await bench.read(out, 3)]
    assert answers == [1, 2, 3]


async def test_outbox_messages_arrive_in_order_per_key(bench: Bench) -> None:
    out = await bench.make_topic(f"{bench.name}.out")
    await bench.start(out=out)

    for _ in range(20):
        await bench.add("a")
        await bench.add("b")
    await bench.sums_to(40)

    async def drained() -> object:
        return await bench.database.fetchval("SELECT count(*) = 0 FROM outbox")

    await eventually(drained)
    seqs: dict[str, list[int]] = {"a": [], "b": []}
    for record in await bench.read(out, 2):
        body = json.loads(record.value)
        seqs[body["key"]].append(body["seq"])
    assert all(found == sorted(found) for found in seqs.values())
    assert {key: found[-1] for key, found in seqs.items()} == {"a": 20, "b": 20}
