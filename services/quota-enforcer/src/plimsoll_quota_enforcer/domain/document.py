"""What does a YAML text say? Read under limits, as text only, and without expanding what aliases stand for.

Nothing is constructed: a scalar stays the text that was written, so dates, octal numbers and ``.inf`` are never
anything else. Aliases share one node and merge keys are resolved once for each mapping, so time and memory follow
the text's length, and a text that stands for more than ``MAX_NODES`` nodes is refused while it is read.
"""

import re
from dataclasses import dataclass, field
from typing import Final

import yaml
from yaml import events

MAX_BYTES: Final = 256 * 1024
"""Largest text, in UTF-8."""
MAX_WRITTEN: Final = 50_000
"""Most scalars, sequences and mappings that are written: each costs time."""
MAX_NODES: Final = 250_000
"""Most of them when those that aliases stand for are counted each time."""
MAX_DEPTH: Final = 50

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DIRECTIVE = re.compile("(?:\\A\ufeff?|[\n\r])%")
_UNALIKE = re.compile("[\x85\u2028\u2029]|(?!\\A)\ufeff")
"""Line breaks of old YAML, and byte order marks inside: readers differ on them, and rendering escapes them."""
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_NOT_TEXT = re.compile(
    r"~|null|Null|NULL|true|True|TRUE|false|False|FALSE|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
    r"|[-+]?0[xob][0-9a-fA-F_]+|[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9_]+)(?:[eE][-+]?[0-9]+)?"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?|",
    re.DOTALL,
)
_MERGE = "<<"


class DocumentRefused(ValueError):
    """A text is no document that we read; the message says why and where."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value as it was written."""

    text: str
    plain: bool
    """Written without quotes, so that YAML gives it a type."""

    @property
    def is_null(self) -> bool:
        """Tell whether YAML reads it as nothing."""
        return self.plain and self.text in _NULL


@dataclass(slots=True)
class Sequence:
    """A list; complete once the document is read."""

    items: "list[Node]" = field(default_factory=list)

    def add(self, node: "Node") -> None:
        """Take the next item."""
        self.items.append(node)

    def close(self) -> None:
        """Be complete."""


@dataclass(slots=True)
class Mapping:
    """A mapping with text keys, merged ones included; complete once the document is read."""

    entries: "dict[str, Node]" = field(default_factory=dict)
    _merges: "list[Node]" = field(default_factory=list)
    _key: "Scalar | None" = None

    def add(self, node: "Node") -> None:
        """Take the next key, or the value of the last one."""
        if self._key is None:
            self._key = _checked_key(node)
            return
        key, self._key = self._key, None
        if key.text == _MERGE:
            if self._merges:
                raise DocumentRefused("the merge key << is written twice in one mapping: give it a list")
            self._merges = node.items if isinstance(node, Sequence) else [node]
            return
        if key.text in self.entries:
            raise DocumentRefused(f"the key {shown(key.text)} is written twice")
        self.entries[key.text] = node

    def close(self) -> None:
        """Add what is merged in: own keys come first, then the mappings in their order."""
        for merged in self._merges:
            if not isinstance(merged, Mapping):
                raise DocumentRefused("the merge key << takes a mapping or a list of mappings")
            for key, node in merged.entries.items():
                self.entries.setdefault(key, node)


Node = Scalar | Sequence | Mapping


def shown(text: str) -> str:
    """Name what was written, but never much of it and nothing that acts on a terminal."""
    return ascii(text if len(text) <= 60 else text[:57] + "...")  # noqa: PLR2004 - enough to find it


def read_document(text: str) -> Node:
    """Read the one document of a text.

    Raises:
        DocumentRefused: it is not YAML, is too large or too deep, stands for too many nodes, or has what no
            rendered file has: several documents, directives, tags, a key twice, a key that is no text.
    """
    try:
        size = len(text) if len(text) > MAX_BYTES else len(text.encode())
    except UnicodeEncodeError:
        raise DocumentRefused("it has characters that no encoding knows") from None
    if size > MAX_BYTES:
        raise DocumentRefused(f"it has more than {MAX_BYTES} bytes")
    if _DIRECTIVE.search(text):  # before reading: thousands of them would cost the parser quadratic time
        raise DocumentRefused("a line begins with %: directives are not read")
    if _UNALIKE.search(text):
        raise DocumentRefused("it has a line break or a byte order mark that not all readers of YAML take alike")
    reading, line = _Reading(), 0
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            line = event.start_mark.line + 1 if event.start_mark else line
            reading.take(event)
    except DocumentRefused as error:
        raise DocumentRefused(f"line {line}: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None)
        raise DocumentRefused(f"line {mark.line + 1 if mark else line}: not YAML, {problem}"[:200]) from None
    if reading.root is None:
        raise DocumentRefused("it is empty")
    return reading.root


def _checked_key(node: Node) -> Scalar:
    if not isinstance(node, Scalar):
        raise DocumentRefused("a key is a list or a mapping: keys are texts")
    if node.plain and _NOT_TEXT.fullmatch(node.text):
        raise DocumentRefused(f"the key {shown(node.text)} is no text: write it in quotes")
    if node.text == _MERGE and not node.plain:
        raise DocumentRefused("the key << is in quotes: some readers merge it and some do not")
    return node


@dataclass(slots=True)
class _Anchored:
    node: Node
    nodes: int | None
    """How many nodes it stands for; None while it is still being read."""


_Noded = events.ScalarEvent | events.CollectionStartEvent


class _Reading:
    """The state between two events of the parser."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self._open: list[tuple[Sequence | Mapping, _Anchored | None, int]] = []
        self._anchors: dict[str, _Anchored] = {}
        self._written = self._nodes = 0

    def take(self, event: events.Event) -> None:
        if isinstance(event, events.ScalarEvent):
            node = Scalar(event.value, event.style in (None, ""))
            self._count(1)
            self._write(event, node, 1)
            self._place(node)
        elif isinstance(event, events.MappingStartEvent):
            self._begin(event, Mapping())
        elif isinstance(event, events.SequenceStartEvent):
            self._begin(event, Sequence())
        elif isinstance(event, events.CollectionEndEvent):
            self._end()
        elif isinstance(event, events.AliasEvent):
            self._alias(event.anchor or "")
        elif isinstance(event, events.DocumentStartEvent) and self.root is not None:
            raise DocumentRefused("it has more than one document")

    def _begin(self, event: events.CollectionStartEvent, node: Sequence | Mapping) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise DocumentRefused(f"it is nested deeper than {MAX_DEPTH}")
        self._open.append((node, self._write(event, node, None), self._nodes))
        self._count(1)

    def _end(self) -> None:
        node, anchored, before = self._open.pop()
        node.close()
        if anchored is not None:
            anchored.nodes = self._nodes - before
        self._place(node)

    def _alias(self, name: str) -> None:
        anchored = self._anchors.get(name)
        if anchored is None:
            raise DocumentRefused(f"the alias {shown(name)} stands for nothing")
        if anchored.nodes is None:
            raise DocumentRefused(f"the alias {shown(name)} stands for what it is part of")
        self._count(anchored.nodes)
        self._place(anchored.node)

    def _write(self, event: _Noded, node: Node, nodes: int | None) -> _Anchored | None:
        if event.tag not in (None, "!"):
            raise DocumentRefused(f"the tag {shown(event.tag)} is not read")
        self._written += 1
        if self._written > MAX_WRITTEN:
            raise DocumentRefused(f"it has more than {MAX_WRITTEN} values")
        if event.anchor is None:
            return None
        self._anchors[event.anchor] = anchored = _Anchored(node, nodes)
        return anchored

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise DocumentRefused(f"it stands for more than {MAX_NODES} nodes once its aliases are expanded")

    def _place(self, node: Node) -> None:
        if self._open:
            self._open[-1][0].add(node)
        else:
            self.root = node
