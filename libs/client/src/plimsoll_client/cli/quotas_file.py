"""What does a file of limits declare? Read strictly, and every fault told with its line. Pure but for ``load``."""

import difflib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from pathlib import Path

import yaml

from plimsoll_client.cli.failures import CommandFailed, Exit
from plimsoll_client.cli.figures import clean, short
from plimsoll_contracts.dimensions import Dimension, applies_at, unit_of
from plimsoll_contracts.enforcement import Mode
from plimsoll_contracts.fields import TEXT_PATTERN, LimitValue, parse_limit
from plimsoll_contracts.limits_api import MAX_DECLARED, DeclaredLimit, DeclaredLimits, SetLimit
from plimsoll_contracts.quantities import QuantityError
from plimsoll_contracts.scopes import DEFAULTS, RollUp, Scope, ScopeError, parse_scope

MAX_BYTES = 256 * 1024
FAULTS_SHOWN_MAX = 20
_SECTIONS = ("defaults", "scopes")
_KEYS = ("value", "mode", "expires", "reason")
_NULL = "tag:yaml.org,2002:null"
_PLAIN = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "timestamp", "merge")}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")

Value = LimitValue | DeclaredLimit | None


@dataclass(frozen=True, slots=True)
class Quotas:
    """What a file declares, by scope and dimension, as the service takes it; None inherits."""

    defaults: Mapping[str, Value]
    scopes: Mapping[str, Mapping[str, Value]]


def load(file: Path) -> Quotas:
    """Read a file, or stdin where it is called ``-``.

    Raises:
        CommandFailed: it cannot be read, or is wrong.
    """
    name = "stdin" if str(file) == "-" else str(file)
    try:
        with sys.stdin.buffer if str(file) == "-" else file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise CommandFailed(
            Exit.USAGE, f"{clean(name)} cannot be read: {error.strerror}", "name another --file"
        ) from None
    return read(content, name)


def read(content: bytes, name: str) -> Quotas:
    """Read the content of a file.

    Raises:
        CommandFailed: it is too large, or no YAML, or it declares something that cannot be; each fault is named.
    """
    if len(content) > MAX_BYTES:
        raise CommandFailed(Exit.USAGE, f"{clean(name)} has more than {MAX_BYTES // 1024} KiB", "split it by tenants")
    reader = _Reader()
    try:
        # Scalars are read as they are written, by our own grammar: what YAML thinks of 010 or 1_000 does not matter.
        root = yaml.compose(content.decode(), Loader=yaml.SafeLoader)
        quotas = reader.quotas(root)
    except UnicodeDecodeError:
        reader.faults.append((0, "it is no text in UTF-8"))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark is not None else 0
        reader.faults.append((line, f"it is no YAML: {error.problem or error.context}"))
    except yaml.YAMLError:
        reader.faults.append((0, "it has characters that YAML does not take"))
    except RecursionError:
        reader.faults.append((0, "it is nested too deep"))
    if not reader.faults:
        return quotas
    found = sorted(reader.faults)
    told = [clean(f"{name}:{line + 1}: {what}") for line, what in found[:FAULTS_SHOWN_MAX]]
    if len(found) > FAULTS_SHOWN_MAX:
        told.append(f"and {len(found) - FAULTS_SHOWN_MAX} more")
    raise CommandFailed(Exit.USAGE, "\n".join(told), "see docs/limits.md and examples/quotas.yaml; nothing was sent")


class _Reader:
    """Walks the nodes of a document, and remembers each fault with its line, counted from 0."""

    def __init__(self) -> None:
        self.faults: list[tuple[int, str]] = []
        self._named = 0

    def quotas(self, root: yaml.Node | None) -> Quotas:
        """Read a whole file."""
        defaults: Mapping[str, Value] = {}
        scopes: dict[str, Mapping[str, Value]] = {}
        if root is None:
            self._fault(None, "it declares nothing: write `defaults:` or `scopes:`")
        for section, key, node in self._pairs(root, "the file"):
            if section not in _SECTIONS:
                self._fault(key, f"{section!r} is no section{_near(section, _SECTIONS)}")
            elif section == "defaults":
                defaults = self._limits(node, None)
            else:
                for text, where, limits in self._pairs(node, "scopes"):
                    scope = self._scope(where, text)
                    scopes[text] = self._limits(limits, scope)
                    if not scopes[text] and _is_null(limits):
                        self._fault(where, f"{text} names no dimension; to inherit write null for each")
        if self._named > MAX_DECLARED:
            self._fault(None, f"it names {self._named} limits, {MAX_DECLARED} are allowed: split it by tenants")
        return Quotas(defaults, scopes)

    def _fault(self, node: yaml.Node | None, what: str) -> None:
        self.faults.append((node.start_mark.line if node is not None else 0, what))

    def _pairs(self, node: yaml.Node | None, what: str) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        """Yield keys and values of a mapping; one that is nothing has none."""
        if node is None or _is_null(node):
            return
        if not isinstance(node, yaml.MappingNode):
            self._fault(node, f"{what} must have names with values")
            return
        seen: set[str] = set()
        for key, value in node.value:
            text = self._text(key)
            if text is None:
                continue
            if text in seen:
                self._fault(key, f"{text!r} is written twice: which one counts is anybody's guess")
                continue
            seen.add(text)
            yield text, key, value

    def _text(self, node: yaml.Node) -> str | None:
        if isinstance(node, yaml.ScalarNode) and node.tag in _PLAIN:
            return str(node.value)
        self._fault(node, "a name or a value must be plain text")
        return None

    def _scope(self, node: yaml.Node, text: str) -> Scope | None:
        try:
            scope = parse_scope(text)
        except ScopeError as error:
            self._fault(node, str(error))
            return None
        if isinstance(scope, RollUp):
            self._fault(node, f"{scope} is a stack over all environments: {scope.alternatives()}")
            return None
        if scope.tenant == DEFAULTS:
            self._fault(node, "no tenant called defaults can have limits: the global ones go under `defaults:`")
        return scope

    def _limits(self, node: yaml.Node, scope: Scope | None) -> Mapping[str, Value]:
        found: dict[str, Value] = {}
        for text, key, value in self._pairs(node, "a scope"):
            self._named += 1
            if text not in tuple(Dimension):
                self._fault(key, f"there is no dimension {text!r}{_near(text, tuple(Dimension))}")
                continue
            dimension = Dimension(text)
            if scope is not None and not applies_at(dimension, scope):
                self._fault(key, f"{scope} cannot have a limit on {dimension}")
            found[dimension] = self._limit(value, dimension)
        return found

    def _limit(self, node: yaml.Node, dimension: Dimension) -> Value:
        if _is_null(node):
            return None
        if not isinstance(node, yaml.MappingNode):
            return self._value(node, dimension)
        fields: dict[str, yaml.Node] = {}
        for text, key, value in self._pairs(node, "a limit"):
            if text not in _KEYS:
                self._fault(key, f"{text!r} is no part of a limit{_near(text, _KEYS)}")
            fields[text] = value
        if "value" not in fields or _is_null(fields["value"]):
            self._fault(node, f"{dimension} has no value; to inherit write `{dimension}: null`")
            return None
        return DeclaredLimit(
            value=self._value(fields["value"], dimension),
            mode=self._mode(fields.get("mode")),
            expires_at=self._expires(fields.get("expires")),
            reason=self._reason(fields.get("reason")),
        )

    def _value(self, node: yaml.Node, dimension: Dimension) -> LimitValue:
        text = self._text(node)
        try:
            return 0 if text is None else parse_limit(dimension, text)
        except QuantityError as error:
            self._fault(node, f"{dimension}: {error}")
            return 0

    def _mode(self, node: yaml.Node | None) -> Mode:
        text = self._text(node) if node is not None else Mode.ENFORCE
        if text not in tuple(Mode):
            if text is not None and node is not None:
                self._fault(node, f"mode {text!r} is neither {' nor '.join(Mode)}")
            return Mode.ENFORCE
        return Mode(text)

    def _expires(self, node: yaml.Node | None) -> datetime | None:
        text = self._text(node) if node is not None and not _is_null(node) else None
        if text is None:
            return None
        try:
            ends = datetime.fromisoformat(text)
            if _DATE.fullmatch(text):
                return datetime.combine(ends.date(), time(), UTC)
            if ends.tzinfo is None:
                self._fault(node, f"expires {text!r} lacks its offset: 2026-12-24T18:00Z, or +01:00 at its end")
                return None
            return ends.astimezone(UTC)
        except (ValueError, OverflowError):
            self._fault(
                node, f"expires {text!r} is no time: write 2026-12-24 (its first moment, UTC) or 2026-12-24T18:00Z"
            )
            return None

    def _reason(self, node: yaml.Node | None) -> str | None:
        text = (self._text(node) if node is not None and not _is_null(node) else None) or ""
        if text.strip() and not (len(text) <= 500 and re.fullmatch(TEXT_PATTERN, text)):  # noqa: PLR2004 - as Text has it
            self._fault(node, "a reason is one line of at most 500 characters")
            return None
        return text.strip() or None


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == _NULL


def _near(text: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(text, known, 1)
    return f": did you mean {near[0]}?" if near else f": there are {', '.join(known)}"


def ended(quotas: Quotas, now: datetime) -> list[str]:
    """Name what a file declares although its time has passed."""
    declared = {DEFAULTS: quotas.defaults, **quotas.scopes} if quotas.defaults else quotas.scopes
    return [
        f"{scope} {dimension} ended on {value.expires_at:%Y-%m-%d %H:%M %Z}, so it counts as null"
        for scope, limits in declared.items()
        for dimension, value in limits.items()
        if isinstance(value, DeclaredLimit) and value.expires_at is not None and value.expires_at <= now
    ]


def write(declared: DeclaredLimits) -> str:
    """Write limits as a file that ``read`` takes for the same."""
    sections = {
        "defaults": _written(declared.defaults),
        "scopes": {scope: _written(limits) for scope, limits in declared.scopes.items()},
    }
    return yaml.safe_dump({name: section for name, section in sections.items() if section}, sort_keys=False)


def _written(limits: Mapping[Dimension, SetLimit | None]) -> dict[str, object]:
    return {str(dimension): _limit_written(dimension, limit) for dimension, limit in limits.items()}


def _limit_written(dimension: Dimension, limit: SetLimit | None) -> object:
    if limit is None:
        return None
    text = short(unit_of(dimension), limit.value)
    value: object = int(text) if text.isdigit() else text
    more = {
        "mode": str(limit.mode) if limit.mode is not Mode.ENFORCE else None,
        "expires": limit.expires_at.isoformat() if limit.expires_at is not None else None,
        "reason": limit.reason,
    }
    kept = {name: text for name, text in more.items() if text is not None}
    return {"value": value, **kept} if kept else value
