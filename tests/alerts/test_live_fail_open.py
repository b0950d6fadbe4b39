"""A gate fails open in a real enforcer, and a real Prometheus says so; it clears once the tenant has a row."""

import importlib
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import product

import httpx
import pytest
from aiokafka import AIOKafkaProducer
from prometheus_client.parser import text_string_to_metric_families

from plimsoll_client import Allowed, EnforcementClient
from plimsoll_contracts.enforcement import Gate
from plimsoll_contracts.entitlements import EntitlementSnapshot
from plimsoll_contracts.envelope import Envelope
from plimsoll_contracts.topics import ENTITLEMENT_EVENTS
from plimsoll_devkit.stack.private import PrivateStack
from plimsoll_runtime import metrics

FASTER = 60
PARTS = ("kafka", "postgres", "prometheus", "migrate", "topics", "quota-enforcer")
GATES = {gate.value for gate in Gate}


@pytest.fixture(scope="module")
def running() -> Iterator[PrivateStack]:
    if shutil.which("prometheus") is None:
        pytest.skip("a real Prometheus evaluates the alerts and is not here: apt-get install prometheus brings it")
    with PrivateStack(PARTS, alerts_faster=FASTER) as stack:
        yield stack


def firing(stack: PrivateStack, alert: str) -> set[str]:
    """Return the gates for which the alert fires now."""
    answer = httpx.get(f"http://{stack.address('prometheus')}/api/v1/alerts").raise_for_status().json()
    return {
        each["labels"]["gate"]
        for each in answer["data"]["alerts"]
        if each["labels"]["alertname"] == alert and each["state"] == "firing"
    }


def until(condition: Callable[[], bool], *, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:g} s: {what}")
        time.sleep(0.25)


def fail_opens(stack: PrivateStack) -> dict[str, float]:
    """Return the counter of each gate, as the enforcer exports it."""
    text = httpx.get(f"http://{stack.address('quota-enforcer')}/metrics").raise_for_status().text
    return {
        gate: float(line.rpartition(" ")[2])
        for line in text.splitlines()
        for gate in GATES
        if line.startswith(f'quota_gate_fail_open_total{{gate="{gate}"}}')
    }


async def ask(stack: PrivateStack, tenant: str) -> tuple[Gate, ...]:
    """Reserve something small and return the gates that failed open for it."""
    async with EnforcementClient(stack.kafka_bootstrap) as client:
        outcome = await client.reserve(
            tenant=tenant,
            environment="prod",
            stack="blog",
            app="web",
            deployment=f"d-{uuid.uuid4().hex}",
            footprint={"cpu": "100m"},
            on_unknown="closed",
        )
    assert isinstance(outcome, Allowed), outcome
    return outcome.reply.fail_open


async def entitle(stack: PrivateStack, tenant: str) -> None:
    snapshot = EntitlementSnapshot(tenant=tenant, entitlement_version=1, plan="team", features={"deployments": True})
    envelope = Envelope(uuid.uuid4().hex, "entitlement.snapshot.v1", "billing", datetime.now(UTC))
    producer = AIOKafkaProducer(bootstrap_servers=stack.kafka_bootstrap)
    await producer.start()
    await producer.send_and_wait(
        ENTITLEMENT_EVENTS.name,
        snapshot.model_dump_json().encode(),
        key=tenant.encode(),
        headers=envelope.headers(),
    )
    await producer.stop()


def test_a_fresh_process_exports_every_declared_series(running: PrivateStack) -> None:
    """A counter that appears only with its first increment hides that increment from every alert."""
    importlib.import_module("plimsoll_quota_enforcer.app")
    text = httpx.get(f"http://{running.address('quota-enforcer')}/metrics").raise_for_status().text
    samples = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    declared = [each for each in metrics.catalogue() if each.name.startswith(("quota_", "streams_"))]
    assert {each.name for each in declared} >= {"quota_gate_fail_open_total", "streams_dead_letters_total"}
    for each in declared:
        name = f"{each.name}_count" if each.kind == "histogram" else each.name
        for values in product(*each.labels.values()):
            labels = frozenset(zip(each.labels, map(str, values), strict=True))
            assert (name, labels) in samples
            if each.name.startswith("quota_") and each.kind == "counter":
                assert samples[name, labels] == 0


async def test_the_alert_fires_for_a_tenant_without_a_row_and_clears(running: PrivateStack) -> None:
    assert fail_opens(running) == dict.fromkeys(GATES, 0.0), "every gate is exported at 0 from the start"
    until(lambda: not firing(running, "QuotaGateTelemetryAbsent"), seconds=20, what="Prometheus sees every gate")
    assert firing(running, "QuotaGateFailOpenAny") == set()

    assert set(await ask(running, "newcomer")) == GATES
    assert fail_opens(running) == dict.fromkeys(GATES, 1.0)
    until(lambda: firing(running, "QuotaGateFailOpenAny") == GATES, seconds=30, what="the alert fires")

    await entitle(running, "newcomer")
    deadline = time.monotonic() + 10
    while await ask(running, "newcomer"):
        assert time.monotonic() < deadline, "the snapshot is projected"
    counted = fail_opens(running)
    assert await ask(running, "newcomer") == ()
    assert fail_opens(running) == counted, "an entitled tenant counts nothing"
    until(lambda: firing(running, "QuotaGateFailOpenAny") == set(), seconds=60, what="the alert clears")


async def test_a_killed_enforcer_forgets_no_fail_open(running: PrivateStack) -> None:
    """It is counted in the deciding transaction: what nobody had scraped yet is there again after the restart."""
    counted = fail_opens(running)
    assert set(await ask(running, "another-newcomer")) == GATES

    running.kill("quota-enforcer")
    running.start("quota-enforcer")

    assert fail_opens(running) == {gate: count + 1 for gate, count in counted.items()}


async def test_a_dead_enforcer_leaves_no_silence(running: PrivateStack) -> None:
    assert firing(running, "QuotaGateTelemetryAbsent") == set()

    running.kill("quota-enforcer")

    until(lambda: firing(running, "QuotaGateTelemetryAbsent") == GATES, seconds=40, what="absence is an alert")


@pytest.fixture
def without_entitlements(running: PrivateStack) -> Iterator[None]:
    """The same service in the dead one's place, in an installation that has no billing."""
    address = running.address("quota-enforcer")
    settings = {
        "PLIMSOLL_KAFKA_BOOTSTRAP": running.kafka_bootstrap,
        "PLIMSOLL_POSTGRES_DSN": running.database.dsn(),
        "PLIMSOLL_HTTP_PORT": address.rpartition(":")[2],
        "PLIMSOLL_ENTITLEMENTS": "off",
        "PLIMSOLL_AUTH": "off",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "plimsoll_quota_enforcer"], env={**os.environ, **settings}, stdout=subprocess.DEVNULL
    )

    def is_ready() -> bool:
        try:
            return httpx.get(f"http://{address}/internal/ready").status_code == 200
        except httpx.TransportError:
            return False

    try:
        until(is_ready, seconds=30, what="the enforcer is ready again")
        yield
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.usefixtures("without_entitlements")
async def test_where_entitlements_are_off_nothing_is_counted(running: PrivateStack) -> None:
    counted = fail_opens(running)

    assert await ask(running, "nobody-bills-me") == ()

    assert fail_opens(running) == counted
    until(lambda: not firing(running, "QuotaGateTelemetryAbsent"), seconds=20, what="the series are back")
    until(lambda: firing(running, "QuotaGateFailOpenAny") == set(), seconds=40, what="nothing new is said")
