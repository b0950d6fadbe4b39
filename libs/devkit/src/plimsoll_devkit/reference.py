"""Which files of the repository are generated, and are they what the code says now? `make docs` writes them."""

import argparse
import importlib
import json
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plimsoll_client.cli import __main__ as cli
from plimsoll_contracts import doctor, export
from plimsoll_devkit.stack import compose
from plimsoll_devkit.stack.context import ROOT
from plimsoll_quota_enforcer.api import routes
from plimsoll_quota_enforcer.api.parts import Parts
from plimsoll_runtime import metrics

_DECLARING = ("plimsoll_runtime", "plimsoll_streams", "plimsoll_client", "plimsoll_quota_enforcer")
_CONTRACTS = ROOT / "docs" / "reference"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the generated files, or with --check only name those that differ."""
    parser = argparse.ArgumentParser(prog="python -m plimsoll_devkit.reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where something differs")
    if parser.parse_args(arguments).check:
        differing = stale()
        print("\n".join(differing) or "every generated file is what the code says")  # noqa: T201  a command prints
        return 1 if differing else 0
    export.write(_CONTRACTS)
    for file, text in pages().items():
        file.write_text(text)
    return 0


def pages() -> Mapping[Path, str]:
    """The generated files that are not the contracts' own, with what they should hold."""
    for package in _DECLARING:
        _import_all(package)
    return {
        ROOT / "compose.yaml": compose.render(),
        _CONTRACTS / "cli.md": cli.reference(),
        _CONTRACTS / "doctor.md": doctor.reference(),
        _CONTRACTS / "metrics.md": metrics.reference(metrics.catalogue()),
        _CONTRACTS / "openapi.json": json.dumps(openapi(), indent=2) + "\n",
    }


def openapi() -> dict[str, Any]:
    """The description of the HTTP API: made from its routes, which answer nothing here."""
    nothing: Any = None
    return routes.build(Parts(nothing, nothing, nothing, nothing, nothing, nothing), nothing).openapi()


def stale() -> list[str]:
    """Each generated file that is missing or differs."""
    own = [f"{file.relative_to(ROOT)} differs" for file, text in pages().items() if _text(file) != text]
    return own + [f"docs/reference: {line}" for line in export.drift(_CONTRACTS)]


def _text(file: Path) -> str | None:
    return file.read_text() if file.exists() else None


def _import_all(package: str) -> None:
    """Metrics are declared where modules are imported; a command's module runs nothing by that."""
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


if __name__ == "__main__":
    sys.exit(main())
