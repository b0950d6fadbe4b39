"""The registry of codes: one form, one meaning each."""

import re

from plimsoll_contracts import codes
from plimsoll_contracts.codes import CODES, EXCEEDED, INVALID_AMOUNT, Code
from plimsoll_contracts.dimensions import Dimension, Unit

CONSTANTS = {name: value for name, value in vars(codes).items() if isinstance(value, Code)}


def test_every_code_has_the_one_form_and_carries_its_status() -> None:
    for text, code in CODES.items():
        assert re.fullmatch(r"X[1-5][0-9]{5}[A-Z0-9]{6}", text)
        assert text == code.code == str(code)
        assert code.status == int(text[1:4])
        assert 400 <= code.status < 600


def test_codes_names_and_numbers_are_unique() -> None:
    assert len({code.name for code in CODES.values()}) == len(CODES)
    assert len({text[:7] for text in CODES}) == len(CODES)
    assert len({text[7:] for text in CODES}) == len(CODES)


def test_every_constant_is_named_as_its_code() -> None:
    assert set(CONSTANTS.values()) == set(CODES.values())
    for name, code in CONSTANTS.items():
        assert name == code.name


def test_every_code_says_what_and_what_to_do() -> None:
    for code in CODES.values():
        assert code.title
        assert code.remedy.endswith(".")


def test_the_codes_that_the_requirements_fix() -> None:
    assert [EXCEEDED[d].code for d in Dimension] == [
        "X403001CPUEXC",
        "X403002MEMEXC",
        "X403003DSKEXC",
        "X403004STKEXC",
        "X403005ENVEXC",
        "X403006APPEXC",
        "X403007VAPEXC",
    ]
    assert INVALID_AMOUNT[Unit.BYTES].code == "X400126BYTVAL"
    assert INVALID_AMOUNT[Unit.MILLICORES].code == "X400127CPUVAL"


def test_402_is_a_quota_and_nothing_else_is() -> None:
    assert {code.name for code in CODES.values() if code.status == 402} == {"QUOTA_BLOCKED"}
