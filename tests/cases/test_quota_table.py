"""Is every case of the collection tested, here or elsewhere, or said to be coming?"""

import re
from pathlib import Path

import pytest
from tests.cases import quota

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def test_every_case_is_tested_here_or_elsewhere_or_said_to_be_coming() -> None:
    tests = "".join(path.read_text() for path in HERE.glob("test_quota_*.py"))
    here = {int(number) for number in re.findall(r"^def test_t(\d+)_", tests, re.MULTILINE)}
    everywhere = [*here, *quota.ELSEWHERE, *quota.COMING]
    assert sorted(everywhere) == sorted(quota.LISTED)


@pytest.mark.parametrize("where", quota.ELSEWHERE.values())
def test_what_is_tested_elsewhere_is_there(where: str) -> None:
    path, name = where.split("::")
    assert re.search(rf"def {name}\(", (ROOT / path).read_text())
