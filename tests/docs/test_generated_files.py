"""Generated files are what the code says now."""

import pytest

from plimsoll_devkit import reference
from plimsoll_runtime import metrics


def test_no_generated_file_is_stale() -> None:
    assert reference.stale() == [], "run: make docs"


def test_a_new_metric_would_be_missed_in_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = metrics.catalogue()
    assert declared, "the services declare metrics"
    monkeypatch.setattr(metrics, "catalogue", lambda: declared[1:])
    assert reference.stale() == ["docs/reference/metrics.md differs"]


def test_every_address_of_the_http_api_is_described_with_its_errors() -> None:
    described = reference.openapi()["paths"]
    assert "patch" in described["/api/v1/quota/tenants/{tenant}/limits"]
    assert all("default" in each["responses"] for methods in described.values() for each in methods.values())
