"""What is wrong with a message: the code and the sentence for a validation that failed."""

from pydantic import ValidationError

from plimsoll_contracts.codes import CODES, INVALID_REQUEST, UNDECODABLE, UNKNOWN_FIELD, Code

MAX_PROBLEMS = 1000
"""A body with more faults than this is refused without listing them: to expand them all would hold up the loop."""


def code_of(error: ValidationError) -> Code:
    """Choose the code of a failed validation: its own where a field has one, else that of a broken schema."""
    if error.error_count() > MAX_PROBLEMS:
        return INVALID_REQUEST
    kinds = [problem["type"] for problem in error.errors(include_url=False, include_input=False, include_context=False)]
    for kind in kinds:
        if kind in CODES:
            return CODES[kind]
    if "json_invalid" in kinds:
        return UNDECODABLE
    if "extra_forbidden" in kinds:
        return UNKNOWN_FIELD
    return INVALID_REQUEST


def explain(error: ValidationError) -> str:
    """Say in one line what is wrong with each field, at most five of them, in printable characters only."""
    if error.error_count() > MAX_PROBLEMS:
        return f"{error.error_count()} things are wrong"
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    told = [f"{_where(p['loc'])}: {_printable(p['msg'][:200])}" for p in problems[:5]]
    if len(problems) > len(told):
        told.append(f"and {len(problems) - len(told)} more")
    return "; ".join(told)


def _where(location: tuple[int | str, ...]) -> str:
    return ".".join(_printable(str(part)[:80]) for part in location) or "body"


def _printable(text: str) -> str:
    """Escape what does not print: names of unknown fields are the sender's, and reach tables and terminals."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
