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
