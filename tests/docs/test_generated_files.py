"""Generated files are what the code says now."""

import pytest

from plimsoll_contracts.access import Permission
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


def test_every_route_of_the_http_api_has_the_habits_of_the_others() -> None:
    """A scope of its own, bounded pages, and a key for what may be sent again."""
    document = reference.openapi()
    schemas = document["components"]["schemas"]
    paths = [(path, *each) for path, methods in document["paths"].items() for each in methods.items()]
    for path, method, operation in paths:
        if path.startswith("/problems/"):
            assert "security" not in operation
            continue
        assert [scope in set(Permission) for each in operation["security"] for scope in each["token"]] == [True], path
        parameters = {each["name"]: each["schema"] for each in operation.get("parameters", ())}
        answer = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        if "next" in schemas[answer]["properties"]:
            assert parameters["limit"]["maximum"] == 500, path
            assert parameters.keys() & {"after", "before"}, path
        changes = method != "get" and not path.endswith("/simulate")  # which only reads, and takes a body to do so
        assert ("idempotency-key" in parameters) == changes, path
