"""How does Prometheus run here, and what does it scrape?"""

from collections.abc import Mapping
from pathlib import Path

import yaml

from plimsoll_devkit.alert_rules import shortened
from plimsoll_devkit.stack import table
from plimsoll_devkit.stack.context import ROOT, Layout
from plimsoll_devkit.stack.services import Plain

RULES = ROOT / "deploy" / "monitoring"


def part(layout: Layout, program: Path, values: Mapping[str, str], alerts_faster: int = 1) -> Plain:
    """The server, its configuration written for the services of this stack; durations in rules are divided."""
    folder = layout.data / "prometheus"
    (folder / "data").mkdir(parents=True, exist_ok=True)
    targets = {service.name: values[service.name] for service in scraped() if service.name in values}
    rules = folder / "rules"
    rules.mkdir(exist_ok=True)
    for rule in RULES.glob("*.yaml"):
        (rules / rule.name).write_text(_paced(rule.read_text(), alerts_faster))
    (folder / "prometheus.yaml").write_text(configuration(targets, [f"{rules}/*.yaml"]))
    settled = {**values, "config": str(folder), "data": str(folder / "data")}
    return Plain(table.BY_NAME["prometheus"], settled, program)


def _paced(rules: str, alerts_faster: int) -> str:
    return rules if alerts_faster == 1 else shortened(rules, alerts_faster)


def scraped() -> tuple[table.Service, ...]:
    """The rows that serve metrics."""
    return tuple(service for service in table.SERVICES if service.kind == "service")


def configuration(targets: Mapping[str, str], rules: list[str]) -> str:
    """Prometheus's configuration: every service each second, rules evaluated as often."""
    jobs = [{"job_name": name, "static_configs": [{"targets": [target]}]} for name, target in targets.items()]
    every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    return yaml.safe_dump({"global": every, "rule_files": rules, "scrape_configs": jobs}, sort_keys=False)
