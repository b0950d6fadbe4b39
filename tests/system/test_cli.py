"""``plimsoll`` as an operator uses it, against the real service."""

import json
from pathlib import Path

import pytest
from tests.system.command import plimsoll

from plimsoll_client import Allowed
from plimsoll_contracts.topics import ENTITLEMENT_EVENTS, USAGE_DELTAS
from plimsoll_devkit.platform import Platform, eventually
from plimsoll_devkit.wire import unique


@pytest.fixture
def tenant() -> str:
    return unique("cli")


async def _plan(running: Platform, tenant: str, **snapshot: object) -> None:
    body = {"tenant": tenant, "entitlement_version": 1, "plan": "team", "features": {"deployments": True}, **snapshot}
    await running.wire.tell(ENTITLEMENT_EVENTS, body)

    async def arrived() -> bool:
        return bool((await running.status(tenant))["plan"] == "team")

    await eventually(arrived, what="the plan")


async def test_a_limit_is_set_seen_denied_on_and_unset(running: Platform, tenant: str) -> None:
    await _plan(running, tenant, limits={"cpu": "8"})
    done = await plimsoll(running, "quota", "set", f"{tenant}/env:prod", "cpu=4", "memory=8g")
    assert done.code == 0
    assert done.out.splitlines()[0] == f"{tenant}/env:prod  cpu  - (no limit set) -> 4000m (override, admin, 0s ago)"

    reserved = await running.client.reserve(
        tenant=tenant,
        environment="prod",
        stack="blog",
        deployment="d",
        footprint={"cpu": "3200m"},
        on_unknown="closed",
    )
    assert isinstance(reserved, Allowed)
    await running.client.commit(tenant=tenant, hold=reserved.request_id)

    denied = await plimsoll(running, "quota", "check", f"{tenant}/blog/prod", "--cpu", "1")
    assert denied.code == 5
    first, second = denied.out.splitlines()[:2]
    assert first == f"DENIED X403001CPUEXC  {tenant}/env:prod cpu (reserved)"
    assert second.startswith("  limit 4000m (override, admin, ")
    assert second.endswith(" ago)  used 3200m  held 0m  asked 1000m  would fit 800m")
    allowed = await plimsoll(running, "quota", "check", f"{tenant}/blog/prod", "--cpu", "800m")
    assert (allowed.code, allowed.out) == (0, f"ALLOWED  {tenant}/blog/prod  cpu 800m\n")

    status = await plimsoll(running, "quota", "status", f"{tenant}/env:prod")
    assert status.code == 0
    assert "cpu (reserved)" in status.out
    assert "override, admin" in status.out
    as_json = json.loads((await plimsoll(running, "-o", "json", "quota", "status", f"{tenant}/env:prod")).out)
    (line,) = (x for x in as_json["dimensions"] if (x["dimension"], x["basis"]) == ("cpu", "reserved"))
    assert (line["used"], line["ceiling"], line["headroom"]) == (3200, 4000, 800)

    unset = await plimsoll(running, "quota", "unset", tenant, "cpu")
    assert (unset.code, unset.out) == (0, f"{tenant}  cpu  8000m (plan) -> 8000m (plan)\n")


async def test_a_limit_below_usage_needs_force(running: Platform, tenant: str) -> None:
    await running.client.adjust(tenant=tenant, deployment="d", footprint={"memory": "2g"})
    refused = await plimsoll(running, "quota", "set", tenant, "memory=1g")
    assert refused.code == 6
    assert "X409010LIMUSG" in refused.err
    assert "--force" in refused.err
    assert (await plimsoll(running, "quota", "set", tenant, "memory=1g", "--force")).code == 0
    over = await plimsoll(running, "quota", "status", tenant)
    assert "over by 1GiB" in over.out


async def test_a_tenant_without_an_entitlement_ends_with_4(running: Platform, tenant: str) -> None:
    await running.set_limits(tenant, {"cpu": 1000})
    status = await plimsoll(running, "quota", "status", tenant)
    assert status.code == 4
    assert "FAILING OPEN" in status.out
    assert "failing open" in status.err
    assert (await plimsoll(running, "quota", "status", unique("nobody"))).code == 3


async def test_a_version_that_has_moved_on_is_a_conflict(running: Platform, tenant: str) -> None:
    assert (await plimsoll(running, "quota", "set", tenant, "cpu=1")).code == 0
    found = json.loads((await plimsoll(running, "quota", "status", tenant, "-o", "json")).out)
    change = ("quota", "set", tenant, "cpu=2", "memory=1g", "--if-version", str(found["limits_version"]))
    assert (await plimsoll(running, *change)).code == 0
    late = await plimsoll(running, *change)
    assert late.code == 6
    assert "X412001LIMVER" in late.err


async def test_defaults_and_lists(running: Platform, tenant: str) -> None:
    await running.set_limits(tenant, {"vapps": 3}, environment="prod")
    assert tenant in (await plimsoll(running, "quota", "list")).out.splitlines()
    assert f"{tenant}/env:prod" in (await plimsoll(running, "quota", "list", tenant)).out.splitlines()
    assert (await plimsoll(running, "quota", "set", "defaults", "apps=7")).code == 0
    shown = await plimsoll(running, "quota", "status", "defaults")
    assert any(line.split()[:2] == ["apps", "7"] for line in shown.out.splitlines())
    assert (await plimsoll(running, "quota", "unset", "defaults", "apps")).code == 0


async def test_a_dead_letter_is_found_looked_at_and_replayed(running: Platform, tenant: str) -> None:
    poison = f"not JSON \x1b[2J of {tenant}".encode()
    await running.wire.send(USAGE_DELTAS, poison, key=tenant.encode())

    async def waiting() -> list[str]:
        listed = await plimsoll(running, "dlq", "list", "-o", "csv")
        return [line.split(",")[0] for line in listed.out.splitlines() if tenant in line]

    await eventually(waiting, what="the dead letter")
    (letter,) = await waiting()
    shown = await plimsoll(running, "dlq", "show", letter)
    assert f"not JSON \\x1b[2J of {tenant}" in shown.out
    tried = await plimsoll(running, "dlq", "replay", letter, "--dry-run")
    assert tried.out == f"would replay {letter} to usage.deltas ({len(poison)} bytes)\n"
    assert (await plimsoll(running, "dlq", "replay", letter)).code == 0
    assert letter not in await waiting()  # it is poison still, so it comes back as another
    missing = await plimsoll(running, "dlq", "show", "999999")
    assert missing.code == 3


async def test_a_compose_file_is_read_by_the_service(running: Platform, tenant: str, tmp_path: Path) -> None:
    await _plan(running, tenant, limits={"cpu": "8"})
    await plimsoll(running, "quota", "set", tenant, "memory=1g")
    file = tmp_path / "compose.yaml"
    web = {"image": "web", "deploy": {"replicas": 2, "resources": {
        "reservations": {"cpus": "0.25", "memory": "128M"}, "limits": {"cpus": "1", "memory": "256M"}}}}  # fmt: skip
    file.write_text(json.dumps({"services": {"web": web, "idle": {"image": "idle"}}}))
    allowed = await plimsoll(running, "quota", "check", f"{tenant}/blog/prod", "-f", str(file))
    assert (allowed.code, allowed.out) == (
        0, f"ALLOWED  {tenant}/blog/prod  cpu 500m (burst 2000m)  memory 256MiB (burst 512MiB)  vapps 1\n"
    )  # fmt: skip
    assert "note: " in allowed.err
    assert "idle" in allowed.err

    web["deploy"]["replicas"] = 9  # type: ignore[index]
    file.write_text(json.dumps({"services": {"web": web}}))
    denied = await plimsoll(running, "quota", "check", f"{tenant}/blog/prod", "-f", str(file))
    assert denied.code == 5
    assert denied.out.splitlines()[0] == f"DENIED X403001CPUEXC  {tenant} cpu (burst)" or "memory" in denied.out
    assert "read from the file: cpu 2250m (burst 9000m)" in denied.out

    file.write_text("services: {web: {image: x, deploy: {resources: {limits: {cpus: lots}}}}}")
    refused = await plimsoll(running, "quota", "check", tenant, "-f", str(file))
    assert refused.code == 2
    assert "web" in refused.err
    assert "cpus" in refused.err
    assert refused.out == ""
