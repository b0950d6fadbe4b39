"""The generated files: written, checked, and refused where they drift."""

from pathlib import Path

import pytest

from plimsoll_contracts.__main__ import main
from plimsoll_contracts.codes import CODES
from plimsoll_contracts.dimensions import REGISTRY
from plimsoll_contracts.export import codes_page, dimensions_page, topics_page
from plimsoll_contracts.topics import CATALOGUE


def test_a_fresh_export_has_no_drift(tmp_path: Path) -> None:
    assert main(["export", "--to", str(tmp_path)]) == 0
    assert main(["export", "--check", "--to", str(tmp_path)]) == 0


def test_drift_is_named_and_fails_and_is_mended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["export", "--to", str(tmp_path)])
    (tmp_path / "codes.md").write_text("# Something else\n", encoding="utf-8")
    (tmp_path / "asyncapi.json").unlink()
    (tmp_path / "schemas" / "gone.v1.json").write_text("{}", encoding="utf-8")
    assert main(["export", "--check", "--to", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    for name in ("codes.md", "asyncapi.json", "gone.v1.json"):
        assert name in said
    assert "topics.md" not in said
    main(["export", "--to", str(tmp_path)])
    assert main(["export", "--check", "--to", str(tmp_path)]) == 0


def test_pages_name_everything() -> None:
    assert all(f"`{code}`" in codes_page() for code in CODES)
    assert all(f"`{name}`" in dimensions_page() for name in REGISTRY)
    assert all(f"`{topic.name}`" in topics_page() for topic in CATALOGUE)


def test_tables_are_not_broken_by_their_cells() -> None:
    for page in (codes_page(), dimensions_page(), topics_page()):
        rows = [line for line in page.splitlines() if line.startswith("|")]
        assert len({row.count("|") for row in rows}) == 1
