"""The three checked scopes, the roll-up, and their four renderings."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_contracts.scopes import NAME_PATTERN, RollUp, Scope, ScopeError, is_name, parse_scope, scope

names = st.from_regex(NAME_PATTERN, fullmatch=True).filter(lambda text: not text.endswith("\n"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("acme", Scope("acme")),
        ("acme/env:staging", Scope("acme", "staging")),
        ("acme/blog", RollUp("acme", "blog")),
        ("acme/blog/default", Scope("acme", "default", "blog")),
    ],
)
def test_the_four_renderings(text: str, expected: Scope | RollUp) -> None:
    assert parse_scope(text) == expected
    assert str(expected) == text


@settings(deadline=None)
@given(names, names, names)
def test_what_is_rendered_is_read_back(tenant: str, environment: str, stack: str) -> None:
    for place in (
        Scope(tenant),
        Scope(tenant, environment),
        Scope(tenant, environment, stack),
        RollUp(tenant, stack),
    ):
        assert parse_scope(place.render()) == place


@settings(deadline=None)
@given(st.text(max_size=80) | st.lists(names | st.sampled_from(["env:", "env:a", ""])).map("/".join))
def test_any_text_is_a_scope_or_an_error(text: str) -> None:
    try:
        place = parse_scope(text)
    except ScopeError:
        return
    assert place.render() == text


def test_a_roll_up_is_refused_with_the_three_forms_that_would_work() -> None:
    with pytest.raises(ScopeError) as refused:
        scope("acme", None, "blog")
    for form in ("acme (the tenant)", "acme/env:NAME", "acme/blog/NAME"):
        assert form in str(refused.value)
        assert form in RollUp("acme", "blog").alternatives()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "acme/",
        "/acme",
        "acme/env:",
        "acme/env:a/b",
        "acme/blog/env:a",
        "a/b/c/d",
        "Acme",
        "acme ",
        "acme\n",
        "acme/env:a\n",
        "acme/bl\x00og",
        "ac.",
        ".ac",
        "-a",
        "a" * 64,
        "ácme",
        "acme/env:" + "a" * 64,
        "env:prod",
    ],
)
def test_what_is_no_scope(text: str) -> None:
    with pytest.raises(ScopeError):
        parse_scope(text)


def test_names() -> None:
    for good in ("a", "0", "a-b", "a.b_c", "a" * 63):
        assert is_name(good)
    for bad in ("", "a\n", "\na", "a" * 64, "A", "a/b", "a:b", "a-", "-a", "\uff41"):
        assert not is_name(bad)


def test_the_chain_goes_from_the_most_specific_scope_up() -> None:
    stack = Scope("acme", "prod", "blog")
    assert stack.chain() == (stack, Scope("acme", "prod"), Scope("acme"))
    assert Scope("acme", "prod").chain() == (Scope("acme", "prod"), Scope("acme"))
    assert Scope("acme").chain() == (Scope("acme"),)


@settings(deadline=None)
@given(names, names, names)
def test_every_scope_of_a_chain_contains_what_it_was_made_for(tenant: str, environment: str, stack: str) -> None:
    for place in (Scope(tenant), Scope(tenant, environment), Scope(tenant, environment, stack)):
        assert all(above.contains(place) for above in place.chain())
        assert [above for above in place.chain() if place.contains(above)] == [place]


def test_scopes_beside_each_other_contain_neither() -> None:
    assert not Scope("acme", "prod").contains(Scope("acme", "staging", "blog"))
    assert not Scope("acme", "prod", "blog").contains(Scope("acme", "prod", "shop"))
    assert not Scope("acme").contains(Scope("other"))
