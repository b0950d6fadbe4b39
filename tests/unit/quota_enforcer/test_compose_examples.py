"""The files of examples/compose/ take what was worked out for each of them by hand."""

import re
from pathlib import Path

import pytest

from plimsoll_contracts import codes
from plimsoll_quota_enforcer.domain.compose import ComposeRefused, read_compose
from plimsoll_quota_enforcer.domain.model import Footprint, Replica

EXAMPLES = Path(__file__).parents[3] / "examples" / "compose"

# Typed by hand from the arithmetic at the top of each file:
# cpu reserved, cpu limit, memory reserved, memory limit, disk, vapps; and the notes.
EXPECTED: dict[str, tuple[Footprint, set[str]]] = {
    "anchors": (Footprint(600, 1500, 402_653_184, 805_306_368, 0, 1), set()),
    "fractional-cpus": (Footprint(1638, 3108, 167_772_160, 167_772_160, 0, 1), set()),
    "gpu": (
        Footprint(6000, 10_000, 25_769_803_776, 42_949_672_960, 0, 1),
        {
            "gpus is not counted: notebook",
            "shm_size is not counted: notebook",
            "deploy.resources.limits.pids is not counted: trainer",
            "deploy.resources.reservations.devices is not counted: trainer",
            "deploy.resources.reservations.generic_resources is not counted: trainer",
        },
    ),
    "jobs": (
        Footprint(2100, 2600, 1_107_296_256, 1_375_731_712, 0, 1),
        {
            "counted for as long as it is deployed, although it is a job: migrate, prune",
            "counted once, although its mode runs one on each eligible node: prune",
        },
    ),
    "large-memory": (Footprint(80_000, 112_000, 3_023_656_976_384, 4_123_168_604_160, 0, 1), set()),
    "legacy-v2": (
        Footprint(1500, 1500, 335_544_320, 603_979_776, 0, 1),
        {
            "cpu_shares is not counted: app",
            "memswap_limit is not counted: app",
            "pids_limit is not counted: app",
            "cpu_period is not counted: proxy",
            "cpu_quota is not counted: proxy",
            "charges no cpu, having neither a limit nor a reservation: proxy",
        },
    ),
    "many-services": (Footprint(1250, 5000, 838_860_800, 2_516_582_400, 0, 1), set()),
    "missing-resources": (
        Footprint(500, 500, 335_544_320, 335_544_320, 0, 1),
        {
            "charges no cpu, having neither a limit nor a reservation: cache, mailer",
            "charges no memory, having neither a limit nor a reservation: cache",
        },
    ),
    "mixed": (
        Footprint(3750, 3750, 1_006_632_960, 1_006_632_960, 0, 1),
        {
            "reserves more cpu than its limit, so the reservation counts on both bases: upside-down",
            "charges no cpu, having neither a limit nor a reservation: unlimited",
            "charges no memory, having neither a limit nor a reservation: unlimited",
        },
    ),
    "monitoring": (
        Footprint(1000, 2900, 3_456_106_496, 6_006_243_328, 0, 1),
        {
            "counted once, although its mode runs one on each eligible node: node-exporter",
            "tmpfs is not counted: prometheus",
        },
    ),
    "parked": (Footprint(), {"nothing runs: every service has 0 replicas, or there is none"}),
    "profiles": (
        Footprint(750, 750, 402_653_184, 402_653_184, 0, 1),
        {"counted, although its profiles may leave it out: debug"},
    ),
    "scaled-workers": (Footprint(2750, 6750, 1_476_395_008, 3_623_878_656, 0, 1), set()),
    "start-first": (
        Footprint(1000, 2000, 536_870_912, 1_073_741_824, 0, 1),
        {
            "runs more replicas during an update (start-first) than are counted: web",
            "deploy.resources.limits.pids is not counted: web",
        },
    ),
    "swarm-agent": (
        Footprint(350, 600, 167_772_160, 335_544_320, 0, 1),
        {"counted once, although its mode runs one on each eligible node: agent"},
    ),
    "wordpress": (Footprint(1000, 1500, 805_306_368, 1_342_177_280, 0, 1), set()),
}


def text_of(name: str) -> str:
    return (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")


def test_every_example_has_its_row() -> None:
    assert {path.stem for path in EXAMPLES.iterdir()} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_takes_what_was_worked_out_by_hand(name: str) -> None:
    read = read_compose(text_of(name), require_resources=False)
    assert (read.footprint, set(read.notes)) == EXPECTED[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_head_of_an_example_says_the_same(name: str) -> None:
    total = re.search(r"^# total: cpu (\d+) / (\d+), memory (\d+) / (\d+), vapps (\d)$", text_of(name), re.MULTILINE)
    assert total is not None
    cpu, cpu_limit, memory, memory_limit, vapps = map(int, total.groups())
    assert EXPECTED[name][0] == Footprint(cpu, cpu_limit, memory, memory_limit, 0, vapps)


def test_replicas_are_listed_for_placing_in_the_order_of_the_file() -> None:
    assert read_compose(text_of("fractional-cpus"), require_resources=True).replicas == (
        Replica("edge", 3, 100, 16_777_216),
        Replica("probe", 4, 1, 16_777_216),
        Replica("router", 2, 500, 16_777_216),
        Replica("tally", 1, 334, 16_777_216),
    )
    assert read_compose(text_of("parked"), require_resources=True).replicas == ()


@pytest.mark.parametrize("name", EXPECTED)
def test_where_resources_are_required_only_the_files_without_are_refused(name: str) -> None:
    lacking = {
        "legacy-v2": "neither a limit nor a reservation of cpu: proxy",
        "missing-resources": "neither a limit nor a reservation of cpu: cache, mailer; "
        "neither a limit nor a reservation of memory: cache",
        "mixed": "neither a limit nor a reservation of cpu: unlimited; "
        "neither a limit nor a reservation of memory: unlimited",
    }
    if name not in lacking:
        assert read_compose(text_of(name), require_resources=True).footprint == EXPECTED[name][0]
        return
    with pytest.raises(ComposeRefused) as refused:
        read_compose(text_of(name), require_resources=True)
    assert (refused.value.code, refused.value.detail) == (codes.RESOURCES_REQUIRED, lacking[name])
