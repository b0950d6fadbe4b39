"""A file of limits: read strictly, each fault with its line; what is written reads back as the same."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_client.cli.failures import CommandFailed, Exit
from plimsoll_client.cli.quotas_file import FAULTS_SHOWN_MAX, MAX_BYTES, ended, load, read, write
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import Mode
from plimsoll_contracts.limits_api import MAX_DECLARED, ApplyBody, DeclaredLimit, DeclaredLimits, SetLimit

EXAMPLE = Path(__file__).parents[3] / "examples" / "quotas.yaml"
GIB = 1 << 30


def faults(text: str | bytes) -> list[str]:
    """Return what is said of a file that is wrong."""
    with pytest.raises(CommandFailed) as failed:
        read(text.encode() if isinstance(text, str) else text, "q.yaml")
    assert failed.value.code is Exit.USAGE
    assert "docs/limits.md" in failed.value.hint or "split" in failed.value.hint
    return failed.value.message.split("\n")


def test_the_example_says_what_it_says() -> None:
    quotas = load(EXAMPLE)
    assert quotas.defaults == {"cpu": 2000, "memory": 4 * GIB, "stacks": 5}
    assert quotas.scopes == {
        "acme": {"cpu": 16000, "memory": 64 * GIB, "disk": "unlimited", "apps": None},
        "acme/env:dev": {"memory": 8 * GIB},
        "acme/blog/prod": {
            "vapps": DeclaredLimit(value=20, expires_at=datetime(2027, 1, 7, tzinfo=UTC), reason="the winter sale"),
            "memory": DeclaredLimit(value=6 * GIB, mode=Mode.SHADOW, reason="to see whether 6g would do"),
        },
    }
    ApplyBody(defaults=quotas.defaults, scopes=quotas.scopes, reason="x")


@pytest.mark.parametrize(
    ("text", "value"),
    [("4", 4000), ("0.5", 500), ("500m", 500), ("'4'", 4000), ("unlimited", "unlimited"), ("0", 0), ("010", 10000)],
)
def test_amounts_are_read_as_they_are_written(text: str, value: object) -> None:
    assert read(f"defaults: {{cpu: {text}}}".encode(), "q").defaults == {"cpu": value}


@pytest.mark.parametrize("text", ["null", "~", "", "Null"])
def test_nothing_inherits(text: str) -> None:
    assert read(f"defaults:\n  cpu: {text}\n".encode(), "q").defaults == {"cpu": None}


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "declares nothing"),
        ("# only words\n", 1, "declares nothing"),
        ("[1]", 1, "must have names"),
        ("\nscope:\n  acme: {cpu: 1}", 2, "'scope' is no section: did you mean scopes?"),
        ("scopes:\n  acme:\n    memroy: 1g", 3, "no dimension 'memroy': did you mean memory?"),
        ("scopes:\n  acme:\n    bandwidth: 1", 3, "there are cpu, memory, disk"),
        ("scopes:\n  acme: {cpu: 1}\n  acme: {cpu: 2}", 3, "'acme' is written twice"),
        ("scopes:\n  acme:\n    cpu: 1\n    'cpu': 2", 4, "'cpu' is written twice"),
        ("defaults: {}\ndefaults: {}", 2, "'defaults' is written twice"),
        ("scopes:\n  acme/blog: {cpu: 1}", 2, "use acme (the tenant), acme/env:NAME"),
        ("scopes:\n  Acme: {cpu: 1}", 2, "'Acme' is not a name"),
        ("scopes:\n  a/b/c/d: {cpu: 1}", 2, "is not a scope"),
        ("scopes:\n  defaults: {cpu: 1}", 2, "under `defaults:`"),
        ("scopes:\n  acme/env:dev:\n    environments: 1", 3, "cannot have a limit on environments"),
        ("scopes:\n  acme:", 2, "names no dimension"),
        ("scopes:\n  acme: 5", 2, "must have names"),
        ("scopes: [acme]", 1, "must have names"),
        ("scopes:\n  acme:\n    memory: 1.5g", 3, "'1.5g' is not an amount"),
        ("scopes:\n  acme:\n    cpu: -1", 3, "'-1' is not an amount"),
        ("scopes:\n  acme:\n    cpu: 1_000", 3, "'1_000' is not an amount"),
        ("scopes:\n  acme:\n    cpu: .inf", 3, "'.inf' is not an amount"),
        ("scopes:\n  acme:\n    vapps: yes", 3, "'yes' is not an amount"),
        ("scopes:\n  acme:\n    cpu: [1]", 3, "must be plain text"),
        ("scopes:\n  acme:\n    cpu: !!binary MQ==", 3, "must be plain text"),
        ("scopes:\n  acme:\n    cpu: !!python/object/apply:os.system [x]", 3, "must be plain text"),
        ("scopes:\n  ? [a]\n  : {cpu: 1}", 2, "must be plain text"),
        ("scopes:\n  acme:\n    cpu: {valeu: 1}", 3, "'valeu' is no part of a limit: did you mean value?"),
        ("scopes:\n  acme:\n    cpu: {mode: shadow}", 3, "cpu has no value"),
        ("scopes:\n  acme:\n    cpu: {value: null}", 3, "cpu has no value"),
        ("scopes:\n  acme:\n    cpu: {value: 1, mode: off}", 3, "mode 'off' is neither enforce nor shadow"),
        ("scopes:\n  acme:\n    cpu: {value: 1, expires: soon}", 3, "'soon' is no time"),
        ("scopes:\n  acme:\n    cpu: {value: 1, expires: 2h}", 3, "'2h' is no time"),
        ("scopes:\n  acme:\n    cpu: {value: 1, expires: 2026-12-24T18:00}", 3, "lacks its offset"),
        ('scopes:\n  acme:\n    cpu:\n      value: 1\n      reason: "a\\tb"', 5, "one line of at most 500"),
        ("a: &x {cpu: 1}\nscopes: {acme: {<<: *x}}", 2, "no dimension '<<'"),
        ("scopes:\n  acme: {cpu: 1", 2, "no YAML"),
        ("scopes: {}\n---\nscopes: {}", 2, "no YAML"),
        ("scopes:\n\tacme: 1", 2, "no YAML"),
        ("scopes: {acme: {cpu: *nowhere}}", 1, "no YAML"),
        (b"scopes: \xff", 1, "no text in UTF-8"),
        (b"scopes: \x00", 1, "characters that YAML does not take"),
        ("[" * 50_000, 1, "nested too deep"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str | bytes, line: int, what: str) -> None:
    found = faults(text)
    assert any(each.startswith(f"q.yaml:{line}: ") and what in each for each in found), found


def test_all_faults_are_told_at_once_in_order_and_not_too_many() -> None:
    found = faults("scopes:\n  Acme: {cpu: 1}\n  acme: {gpu: 1, memory: x}\ndefaults: {disk: -1}")
    assert [each.split(":")[1] for each in found] == ["2", "3", "3", "4"]
    many = faults("scopes:\n" + "".join(f"  a{n}: {{gpu: 1}}\n" for n in range(100)))
    assert (len(many), many[-1]) == (FAULTS_SHOWN_MAX + 1, "and 80 more")


def test_hostile_text_is_written_out() -> None:
    found = "".join(faults('scopes:\n  "a\\e[2J": {cpu: 1}'))
    assert "\x1b" not in found


def test_it_is_bounded() -> None:
    assert "more than 256 KiB" in faults(b"#" * (MAX_BYTES + 1))[0]
    many = "scopes:\n" + "".join(f"  a{n}: {{cpu: 1}}\n" for n in range(MAX_DECLARED + 1))
    assert f"{MAX_DECLARED} are allowed" in faults(many)[0]
    bomb = "a: &a {cpu: 1}\nscopes:\n" + "".join(f"  a{n}: *a\n" for n in range(MAX_DECLARED + 1))
    assert any(f"{MAX_DECLARED} are allowed" in each for each in faults(bomb))


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    for name in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(CommandFailed, match="cannot be read"):
            load(name)


def test_an_alias_stands_for_what_it_names() -> None:
    quotas = read(b"scopes:\n  acme: &small {cpu: 1}\n  globex: *small", "q")
    assert quotas.scopes == {"acme": {"cpu": 1000}, "globex": {"cpu": 1000}}


def test_what_has_ended_is_said() -> None:
    quotas = read(b"defaults:\n  cpu: {value: 1, expires: 2026-01-01}\nscopes: {acme: {cpu: 1}}", "q")
    assert ended(quotas, datetime(2026, 1, 2, tzinfo=UTC)) == [
        "defaults cpu ended on 2026-01-01 00:00 UTC, so it counts as null"
    ]
    assert ended(quotas, datetime(2025, 12, 31, tzinfo=UTC)) == []


moments = st.datetimes(datetime(2026, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - it wants naive bounds
reasons = st.text(st.characters(exclude_categories=("Cc", "Cs", "Cf", "Zl", "Zp", "Cn", "Co")), min_size=1, max_size=20)
set_limits = st.builds(
    SetLimit,
    value=st.one_of(st.just("unlimited"), st.integers(0, 2**53 - 1), st.sampled_from([0, 1000, 4000, 8 * GIB])),
    mode=st.sampled_from(Mode),
    expires_at=st.none() | moments,
    reason=st.none() | reasons.map(str.strip).filter(bool),
)
tables = st.dictionaries(st.sampled_from(Dimension), st.none() | set_limits, min_size=1)
scopes = st.sampled_from(["acme", "globex", "acme/blog/prod", "1", "null", "true", "1e3", "0x1f", "2026-01-01", "no"])


of_any_scope = st.sampled_from([Dimension.CPU, Dimension.DISK, Dimension.APPS])
anywhere = st.dictionaries(of_any_scope, st.none() | set_limits, min_size=1)


@given(tables, st.dictionaries(scopes, anywhere))
def test_what_is_written_reads_back_as_the_same(
    defaults: dict[Dimension, SetLimit | None], by_scope: dict[str, dict[Dimension, SetLimit | None]]
) -> None:
    declared = DeclaredLimits(defaults=defaults, scopes=by_scope)
    quotas = read(write(declared).encode(), "q")

    def plain(value: object) -> SetLimit | None:
        if value is None or isinstance(value, int | str):
            return None if value is None else SetLimit.model_validate({"value": value})
        assert isinstance(value, DeclaredLimit)
        return SetLimit.model_validate(value.model_dump())

    assert {k: plain(v) for k, v in quotas.defaults.items()} == declared.defaults
    assert {s: {k: plain(v) for k, v in t.items()} for s, t in quotas.scopes.items()} == declared.scopes
