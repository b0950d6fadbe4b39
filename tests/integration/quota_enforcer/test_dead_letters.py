"""Records that were set aside: listed, shown with their bytes, and played again."""

import base64
import json

import pytest

from plimsoll_contracts import codes
from plimsoll_contracts.api import DeadLetterList, DeadLetterView
from plimsoll_contracts.topics import QUOTA_REQUESTS, USAGE_DELTAS
from plimsoll_devkit.platform import Platform, eventually
from plimsoll_devkit.wire import Wire, asking, header


async def kept(quota: Platform, place: tuple[str, int, int]) -> int:
    """Wait for the row of a record that was set aside, and return its id."""
    sql = 'SELECT id FROM dead_letters WHERE topic = $1 AND partition = $2 AND "offset" = $3'
    await eventually(lambda: quota.database.fetchval(sql, *place), what="the dead letter")
    return int(await quota.database.fetchval(sql, *place))


async def conflict(quota: Platform, tenant: str) -> int:
    """Set a delta aside: revision 1 with other content than the stored one."""
    told = {"tenant": tenant, "deployment": "d1", "revision": 1}
    await quota.wire.tell(USAGE_DELTAS, {**told, "after": {"cpu": 10}})
    return await kept(quota, await quota.wire.tell(USAGE_DELTAS, {**told, "after": {"cpu": 20}}))


async def test_they_are_listed_and_shown_byte_for_byte(quota: Platform, wire: Wire, tenant: str) -> None:
    place = await wire.send(QUOTA_REQUESTS, b"\x00\xff bytes", key=b"\xfe" + tenant.encode(), headers=[("a", None)])
    letter = await kept(quota, place)

    async with quota.http as http:
        page = DeadLetterList.model_validate_json(
            (await http.get("/dead-letters", params={"after": letter - 1})).content
        )
        shown = DeadLetterView.model_validate_json((await http.get(f"/dead-letters/{letter}")).content)

    (listed,) = page.dead_letters
    assert listed.value_base64 is None
    assert (shown.topic, shown.partition, shown.offset) == place
    assert (shown.code, shown.size, shown.replayed_at) == (codes.NO_REPLY_TO.code, 8, None)
    assert shown.key == f"\\xfe{tenant}", "a key that is no text is shown all the same"
    assert base64.b64decode(shown.value_base64 or "") == b"\x00\xff bytes"
    assert shown.detail


async def test_pages_follow_each_other(quota: Platform, wire: Wire, tenant: str) -> None:
    letters = [
        await kept(quota, await wire.send(QUOTA_REQUESTS, b"x", key=tenant.encode(), headers=())) for _ in range(3)
    ]
    async with quota.http as http:
        first = (await http.get("/dead-letters", params={"after": letters[0] - 1, "limit": 2})).json()
        second = (await http.get("/dead-letters", params={"after": first["next"], "limit": 2})).json()

    assert [each["id"] for each in first["dead_letters"] + second["dead_letters"]] == letters
    assert second["next"] is None


async def test_a_replay_is_published_byte_for_byte_and_hidden_from_the_list(
    quota: Platform, wire: Wire, tenant: str
) -> None:
    body = json.dumps(asking("reserve", tenant)).encode()
    place = await wire.send(QUOTA_REQUESTS, body, key=tenant.encode(), headers=[("own", b"\xff")])
    letter = await kept(quota, place)
    async with quota.http as http:
        dry = await http.post(f"/dead-letters/{letter}/replay", params={"dry_run": True})
        assert dry.json()["replayed_at"] is None
        assert (await http.get("/dead-letters", params={"after": letter - 1})).json()["dead_letters"]

        before = await wire.ends(QUOTA_REQUESTS)
        assert (await http.post(f"/dead-letters/{letter}/replay")).is_success

        # It is as unanswerable as before, and is set aside again: at its new place.
        again = await wire.dead_letter((QUOTA_REQUESTS.name, place[1], before[place[1]]))
        assert (again.key, again.value, again.headers[0]) == (tenant.encode(), body, ("own", b"\xff"))
        assert header(again, "dlq-code") == codes.NO_REPLY_TO.code.encode()
        waiting = (await http.get("/dead-letters", params={"after": letter - 1})).json()["dead_letters"]
        assert letter not in [each["id"] for each in waiting]
        every = (await http.get("/dead-letters", params={"after": letter - 1, "replayed": True})).json()
        assert letter in [each["id"] for each in every["dead_letters"]]


async def test_a_replayed_fact_is_idempotent(quota: Platform, wire: Wire, tenant: str) -> None:
    letter = await conflict(quota, tenant)
    # What it contradicted has moved on meanwhile; the old fact must not come back.
    await wire.tell(USAGE_DELTAS, {"tenant": tenant, "deployment": "d1", "revision": 5, "after": {"cpu": 50}})
    counted = await quota.counted()
    async with quota.http as http:
        for _ in range(3):
            assert (await http.post(f"/dead-letters/{letter}/replay")).is_success

    async def stale() -> bool:
        return await counted.since("quota_settles_total", outcome="stale") == 3

    await eventually(stale, what="three replays")
    assert await quota.used(tenant, "cpu") == (50, 0)


async def test_a_replay_is_applied_once_its_cause_is_mended(quota: Platform, wire: Wire, tenant: str) -> None:
    told = {"tenant": tenant, "deployment": "d1", "revision": 3, "after": {"cpu": 20}}
    # Set aside because of a conflict that the test then takes back, as an operator's repair would.
    await wire.tell(USAGE_DELTAS, {**told, "after": {"cpu": 10}})
    letter = await kept(quota, await wire.tell(USAGE_DELTAS, told))
    await quota.enforcer().stop()
    await quota.database.execute("UPDATE charges SET revision = 2 WHERE tenant = $1", tenant)
    await quota.enforcer().start()
    await quota.enforcer().ready(1)
    async with quota.http as http:
        for _ in range(2):
            assert (await http.post(f"/dead-letters/{letter}/replay")).is_success

    async def settled() -> bool:
        return await quota.used(tenant, "cpu") == (20, 0)

    await eventually(settled)


@pytest.mark.parametrize("letter", ["999999999", "0", str(2**63 - 1)])
async def test_a_letter_there_is_not(quota: Platform, letter: str) -> None:
    async with quota.http as http:
        for answer in (await http.get(f"/dead-letters/{letter}"), await http.post(f"/dead-letters/{letter}/replay")):
            assert (answer.status_code, answer.json()["code"]) == (404, codes.NOT_FOUND.code)


@pytest.mark.parametrize("letter", ["x", str(2**63), "-1", "1.5"])
async def test_no_number_of_a_letter(quota: Platform, letter: str) -> None:
    async with quota.http as http:
        for answer in (await http.get(f"/dead-letters/{letter}"), await http.post(f"/dead-letters/{letter}/replay")):
            assert answer.status_code == 400, answer.text
        assert (await http.get("/dead-letters", params={"after": letter})).status_code == 400
