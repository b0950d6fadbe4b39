"""The alert rules against promtool, their runbooks, and the metrics that our processes declare."""

import importlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll_devkit.alert_rules import shortened
from plimsoll_runtime import metrics

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"
RULE_FILES = sorted(MONITORING.glob("*.yaml"))
TEST_FILES = sorted((MONITORING / "tests").glob("*.yaml"))

DECLARING_MODULES = ("plimsoll_streams.metrics", "plimsoll_quota_enforcer.metrics")

# Exported by the client library for every process.
PROCESS_METRICS = {"process_start_time_seconds"}
HEADINGS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]


def rules(kind: str) -> Iterator[dict[str, Any]]:
    """Yield every rule that has `kind`: alert or record."""
    for path in RULE_FILES:
        for group in yaml.safe_load(path.read_text())["groups"]:
            yield from (rule for rule in group["rules"] if kind in rule)


ALERTS = {rule["alert"]: rule for rule in rules("alert")}


def run_promtool(*arguments: str | Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool checks the alert rules and is not here: apt-get install prometheus brings it")
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_there() -> None:
    assert [path.name for path in RULE_FILES] == ["engine.yaml", "gates.yaml"]
    assert len(ALERTS) == sum(1 for _ in rules("alert")), "two alerts share a name"


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.name)
def test_promtool_accepts_the_rules(path: Path) -> None:
    run_promtool("check", "rules", path)


@pytest.mark.parametrize("path", TEST_FILES, ids=lambda path: path.name)
def test_promtool_runs_the_rule_tests(path: Path) -> None:
    run_promtool("test", "rules", path)


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_a_firing_and_a_silent_case(alert: str) -> None:
    cases = [
        bool(case["exp_alerts"])
        for path in TEST_FILES
        for test in yaml.safe_load(path.read_text())["tests"]
        for case in test["alert_rule_test"]
        if case["alertname"] == alert
    ]

    assert set(cases) == {True, False}


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    runbooks = {path.stem for path in (MONITORING / "runbooks").glob("*.md")}

    assert runbooks == set(ALERTS)
    for name, rule in ALERTS.items():
        assert rule["annotations"]["runbook_url"] == f"deploy/monitoring/runbooks/{name}.md"


@pytest.mark.parametrize("alert", ALERTS)
def test_a_runbook_has_its_headings_and_no_dead_link(alert: str) -> None:
    path = MONITORING / "runbooks" / f"{alert}.md"
    text = path.read_text()

    assert text.startswith(f"# {alert}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (path.parent / link).is_file(), link


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_says_how_bad_it_is_and_what_it_means(alert: str) -> None:
    rule = ALERTS[alert]

    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert {"summary", "description", "runbook_url"} <= set(rule["annotations"])


def named_metrics(expression: str) -> set[str]:
    """Return the metrics of an expression of the forms used here (no label set without a metric)."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\"[^\"]*\"", " ", expression)
    bare = re.sub(r"\b(by|on|without|ignoring)\s*\([^)]*\)", " ", bare)
    names = set(re.findall(r"(?<![\w:.])[a-zA-Z_][\w:]*(?![\w:]*\s*\()", bare))
    return names - {"and", "or", "unless", "offset", "bool"}


def test_names_are_found_in_expressions() -> None:
    expression = 'sum by (gate) (rate(a_total{x="b"}[5m])) / c:d:e5m > 0.5 and on (job) changes(f[1h]) or g offset 15m'

    assert named_metrics(expression) == {"a_total", "c:d:e5m", "f", "g"}


def declared_series() -> set[str]:
    for module in DECLARING_MODULES:
        importlib.import_module(module)
    return {
        name
        for each in metrics.catalogue()
        for name in (
            [f"{each.name}_{part}" for part in ("bucket", "count", "sum")] if each.kind == "histogram" else [each.name]
        )
    }


def test_every_metric_of_the_rules_is_declared_by_a_process() -> None:
    recorded = {rule["record"] for rule in rules("record")}
    wanted = {name for kind in ("alert", "record") for rule in rules(kind) for name in named_metrics(rule["expr"])}

    assert wanted - recorded - PROCESS_METRICS <= declared_series()


def test_every_label_value_of_the_rules_is_declared() -> None:
    """An alert on `phase="halted"` would be silent for ever."""
    declared_series()
    labels = {each.name: each.labels for each in metrics.catalogue()}
    found = 0
    for rule in rules("alert"):
        for metric, label, values in re.findall(r"(\w+)\{(\w+)=~?\"([^\"]+)\"\}", rule["expr"]):
            found += 1
            assert set(values.split("|")) <= set(labels[metric][label]), (metric, label, values)
    assert found >= 4


def test_every_metric_in_a_runbook_exists() -> None:
    known = declared_series() | {rule["record"] for rule in rules("record")} | PROCESS_METRICS
    for path in (MONITORING / "runbooks").glob("*.md"):
        mentioned = set(re.findall(r"\b(?:quota_gate|streams|process)_\w+|\bgate:\w+:\w+", path.read_text()))
        assert mentioned <= known, path.name


def test_the_shortened_rules_differ_in_durations_only(tmp_path: Path) -> None:
    for path in RULE_FILES:
        short = shortened(path.read_text(), 60)
        (tmp_path / path.name).write_text(short)
        run_promtool("check", "rules", tmp_path / path.name)

        def without_durations(rules: str) -> str:
            return re.sub(r"\d+(ms|s|m|h)\b", "", rules)

        assert without_durations(short) == without_durations(path.read_text())
        assert "ratio_rate5m" in short or "streams_" in short
        assert not re.search(r"(\[|offset |for: |interval: )\d+(m|h|s)\b", short)
