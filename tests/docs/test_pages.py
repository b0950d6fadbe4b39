"""The pages hold together: links lead somewhere, and every decision is complete and listed."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")]
    if ".local" not in path.parts
)
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    assert [target for target in targets if target and not (page.parent / target).exists()] == []


def test_contributing_names_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named_files = re.findall(r"`((?:libs|services|tests|docs|deploy)/[\w./-]+)`", text)
    assert named_files
    assert [name for name in named_files if not (ROOT / name).exists()] == []


def test_decisions_are_numbered_and_listed() -> None:
    assert [int(path.name[:4]) for path in DECISIONS] == list(range(1, len(DECISIONS) + 1))
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", index) == [path.name for path in DECISIONS]


@pytest.mark.parametrize("page", DECISIONS, ids=named)
def test_a_decision_says_why_what_else_and_when_to_look_again(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {page.name[:4]}: ")
    for part in ("Status: ", "Rejected", "Look again when"):
        assert part in text
