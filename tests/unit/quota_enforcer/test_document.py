"""Hostile YAML is refused while it is read, in bounded time, and never expanded nor constructed."""

import itertools
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_contracts import codes
from plimsoll_quota_enforcer.domain import document
from plimsoll_quota_enforcer.domain.compose import ComposeRefused, read_compose
from plimsoll_quota_enforcer.domain.document import DocumentRefused, Mapping, Node, Scalar, read_document

EXAMPLES = Path(__file__).parents[3] / "examples" / "compose"
LARGEST = document.MAX_BYTES
EMPTY = "services: {}\n"


def refusal(text: str) -> str:
    with pytest.raises(ComposeRefused) as refused:
        read_compose(text, require_resources=False)
    assert refused.value.code is codes.COMPOSE_INVALID
    assert refused.value.detail.startswith("the file: ")
    return refused.value.detail


def laughs(levels: int) -> str:
    """Write nine lists of nine lists of nine lists ..."""
    lines = ["x0: &x0 [ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    lines += [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines) + "\n" + EMPTY


def merged(length: int) -> str:
    """Write mappings that each merge the one before and add a key."""
    return "m0: &m0 {k: 1}\n" + "".join(f"m{n}: &m{n} {{<<: *m{n - 1}, k{n}: 1}}\n" for n in range(1, length)) + EMPTY


HOSTILE = [
    ("", "it is empty"),
    ("# nothing\n", "it is empty"),
    ("a" * (LARGEST + 1), f"it has more than {LARGEST} bytes"),
    ("\u20ac" * (LARGEST // 3 + 1), f"it has more than {LARGEST} bytes"),
    ("a: \ud800", "it has characters that no encoding knows"),
    (laughs(6), "line 6: it stands for more than 250000 nodes once its aliases are expanded"),
    (laughs(40), "line 6: it stands for more than 250000 nodes once its aliases are expanded"),
    (merged(9000)[: LARGEST - 1], "it stands for more than 250000 nodes"),
    ("[" * 60, "line 1: it is nested deeper than 50"),
    ("{" * 60, "line 1: it is nested deeper than 50"),
    ("[" * LARGEST, "exceeded maximum nesting depth"),
    ("- " * 1000, "line 1: it is nested deeper than 50"),
    ("[" + "a," * 60_000 + "]", "line 1: it has more than 50000 values"),
    ("a: 1\nb: 2\na: 3", "line 3: the key 'a' is written twice"),
    ('a: 1\n"a": 2', "line 2: the key 'a' is written twice"),
    ("services:\n  web:\n    cpus: 1\n    cpus: 2", "line 4: the key 'cpus' is written twice"),
    ("a: 1\n\ufeffservices: {}", "not all readers of YAML take alike"),
    ("a: 1\u2028services: {}", "not all readers of YAML take alike"),
    ("a: 1\x85services: {}", "not all readers of YAML take alike"),
    ("a: &a {<<: {k: 1}, <<: {k: 2}}", "the merge key << is written twice"),
    ("services: {a: {'<<': {cpus: 1}}}", "the key << is in quotes"),
    ("a: {<<: 1}", "the merge key << takes a mapping or a list of mappings"),
    ("a: {<<: [{}, 1]}", "the merge key << takes a mapping or a list of mappings"),
    ("a: &a [*a]", "the alias 'a' stands for what it is part of"),
    ("a: &a {<<: *a}", "the alias 'a' stands for what it is part of"),
    ("a: *b", "the alias 'b' stands for nothing"),
    ("a: &b 1\n---\nb: *b", "it has more than one document"),
    ("a: 1\n---\nb: 2", "line 2: it has more than one document"),
    ("%YAML 1.1\n---\na: 1", "directives are not read"),
    ("\ufeff%TAG ! x\n---\na: 1", "directives are not read"),
    ("a: 1\n...\n%YAML 1.1\n---\nb: 1", "directives are not read"),
    ("".join(f"%TAG !{n:05x}! x\n" for n in range(15_000)) + "---\na", "directives are not read"),
    ("a: !!python/object/apply:os.system [id]", "the tag 'tag:yaml.org,2002:python/object/apply:os.system' is not"),
    ("a: !!str 1", "the tag 'tag:yaml.org,2002:str' is not read"),
    ("a: !reset null", "the tag '!reset' is not read"),
    ("!!map {a: 1}", "the tag 'tag:yaml.org,2002:map' is not read"),
    ("!!binary aGk=: 1", "is not read"),
    ("[1]: a", "a key is a list or a mapping"),
    ("? {a: 1}\n: b", "a key is a list or a mapping"),
    ("a: [", "not YAML"),
    ("a: b: c", "not YAML"),
    ("a\0b", "not YAML"),
    ("\x1b[31m: 1", "not YAML"),
    ("a: 'b", "not YAML"),
    ("\tb: 1", "not YAML"),
]


@pytest.mark.parametrize(("text", "says"), HOSTILE, ids=lambda text: ascii(text[:40]))
def test_hostile_texts_are_refused_with_a_reason(text: str, says: str) -> None:
    assert says in refusal(text)


@pytest.mark.parametrize(
    "key",
    [
        *(
            "1",
            "-1",
            "1.5",
            ".5",
            "1e3",
            "0x1F",
            "0o17",
            "1_000",
            "true",
            "False",
            "null",
            "~",
            "NULL",
            ".inf",
            "-.INF",
        ),
        *(".nan", "2026-03-01", "2026-3-1 12:00:00", "2026-03-01T12:00:00Z", ""),
    ],
)
def test_a_key_that_is_no_text_is_refused_unless_it_is_quoted(key: str) -> None:
    assert f"the key {key!r} is no text: write it in quotes" in refusal(f"services: {{}}\nx: {{? {key} : 1}}")
    assert isinstance(read_document(f"services: {{}}\nx: {{'{key}': 1}}"), Mapping)


@pytest.mark.parametrize(
    "key", ["on", "no", "yes", "y", "1:30", "1.2.3", "v1", "1st", "0xg", "-", "2026-03", ".5a", "=a"]
)
def test_a_key_that_is_a_text_to_docker_is_one_here(key: str) -> None:
    top = read_document(f"services: {{}}\n{key}: 1")
    assert isinstance(top, Mapping)
    assert key in top.entries


def test_values_stay_the_text_that_was_written() -> None:
    written = ["010", "1:30", "0x1F", "2026-03-01", ".inf", "yes", "1_000", "1e3", "9" * 10_000]
    top = read_document("x: [" + ", ".join(written) + "]")
    assert isinstance(top, Mapping)
    assert top.entries["x"].items == [Scalar(text, plain=True) for text in written]  # type: ignore[union-attr]


def test_an_alias_shares_what_it_stands_for() -> None:
    top = read_document("a: &a {k: [1, 2]}\nb: *a\nc: &a 1\nd: *a")
    assert isinstance(top, Mapping)
    assert top.entries["b"] is top.entries["a"]
    assert top.entries["d"] == Scalar("1", plain=True)


def test_aliases_within_bounds_are_read() -> None:
    assert isinstance(read_document(laughs(5)), Mapping)
    assert isinstance(read_document(merged(300)), Mapping)


def wide(item: str, least: int = 2) -> str:
    """Fill a file of the largest size, or of the most values, with one item again and again."""
    count = min(LARGEST // len(item) - 40, document.MAX_WRITTEN // least - 20)
    return EMPTY + "x: [" + item * count + "]"


LARGEST_ACCEPTED = {
    "scalars": wide("a,", 1),
    "lists": wide("[],", 1),
    "pairs": wide("a: ,", 3),
    "anchors": EMPTY + "x: [" + ",".join(f"&{n:x} a" for n in range(LARGEST // 10)) + "]",
    "aliases": EMPTY + "x: [&a a," + "*a," * (LARGEST // 3 - 30) + "]",
    "keys": EMPTY + "x:\n" + "".join(f" k{n:05x}:\n" for n in range(24_000)),
    "long text": EMPTY + 'x: "' + "\\n" * (LARGEST // 2 - 20) + '"',
    "comments": EMPTY + "#\n" * (LARGEST // 2 - 20),
    "services": "services:\n" + "".join(f" s{n}: {{cpus: 1, scale: 2}}\n" for n in range(8_300)),
    "services by alias": "x: &a {image: x, deploy: {replicas: 2, resources: {limits: {cpus: 1, memory: 1g, pids: 9},"
    " reservations: {cpus: .5}}}}\nservices:\n" + "".join(f" s{n}: *a\n" for n in range(10_000)),
    "services by merge": "x: &a {image: x, cpus: 1, mem_limit: 1m, gpus: 1, tmpfs: a, cpuset: a}\nservices:\n"
    + "".join(f" s{n}: {{<<: *a}}\n" for n in range(10_000)),
    "merges": merged(350)[: -len(EMPTY)] + "y: {a: 1}\n" + EMPTY,
}


@pytest.mark.parametrize("name", LARGEST_ACCEPTED)
def test_the_slowest_files_that_are_read_take_bounded_time(name: str) -> None:
    """About 0.15 s of processor time at worst; twenty times that would be a mistake of ours, not a slow machine."""
    text = LARGEST_ACCEPTED[name]
    assert len(text) <= LARGEST
    began = time.process_time()
    read_compose(text, require_resources=False)
    assert time.process_time() - began < 3


def outcome(text: str, loader: object) -> Node | str:
    before = document._LOADER
    document._LOADER = loader  # type: ignore[misc]
    try:
        return read_document(text)
    except DocumentRefused:
        return "refused"
    finally:
        document._LOADER = before  # type: ignore[misc]


fragments = st.sampled_from(
    [
        *("a", "b: ", "- ", "\n", "  ", "[", "]", "{", "}", ",", ": ", "&x ", "*x", "<<: ", '"q"', "'s'", "|\n", ">\n"),
        *(
            "#c\n",
            "? ",
            "!",
            "!!str ",
            "~",
            "1",
            "---\n",
            "...\n",
            "\t",
            "\u00e9",
            "services:\n",
            " web:\n",
            "  cpus: 1\n",
        ),
    ]
)


@given(st.lists(fragments, max_size=24).map("".join))
def test_what_both_parsers_read_they_read_alike(text: str) -> None:
    """The one in C is used where it is there. The slow one refuses some tabs that the other takes for blanks."""
    fast, slow = outcome(text, yaml.CSafeLoader), outcome(text, yaml.SafeLoader)
    assert fast == slow or "refused" in (fast, slow)


@pytest.mark.parametrize("path", sorted(EXAMPLES.iterdir()), ids=lambda path: path.stem)
def test_both_parsers_read_the_examples_alike(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    read = outcome(text, yaml.CSafeLoader)
    assert read != "refused"
    assert read == outcome(text, yaml.SafeLoader)


def only_refuses(text: str) -> None:
    for required in (False, True):
        detail = ""
        try:
            read_compose(text, require_resources=required)
        except ComposeRefused as error:
            detail = error.detail
        assert detail.isascii()
        assert detail.isprintable()
        assert len(detail) < 1000


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda data: data.decode("latin-1")))
def test_any_text_is_read_or_refused(text: str) -> None:
    only_refuses(text)


@given(st.lists(fragments, max_size=40).map("".join))
def test_anything_like_yaml_is_read_or_refused(text: str) -> None:
    only_refuses(text)
    only_refuses("services:\n web:\n  deploy:\n" + text)


@given(st.sampled_from(sorted(EXAMPLES.iterdir())), st.data())
def test_a_broken_example_is_read_or_refused(path: Path, data: st.DataObject) -> None:
    text = path.read_text(encoding="utf-8")
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, min(begin + 40, len(text))))
    only_refuses(text[:begin] + data.draw(fragments | st.text(max_size=6)) + text[end:])


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
KEYS = ("deploy", "resources", "limits", "reservations", "cpus", "memory", "replicas", "mode", "scale", "mem_limit")


@given(st.dictionaries(st.sampled_from(KEYS), values), st.integers(0, 4))
def test_any_value_at_any_key_is_read_or_refused(service: dict[str, object], depth: int) -> None:
    inner: dict[str, object] = service
    for key in itertools.islice(("limits", "resources", "deploy"), min(depth, 3)):
        inner = {key: inner}
    only_refuses(yaml.safe_dump({"services": {"web": inner}}))
