"""How does a shell complete ``plimsoll``: commands and options from the app, scopes and dimensions as they are now."""

import inspect
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from cyclopts import App
from cyclopts.completion.detect import ShellDetectionError, detect_shell

from plimsoll_client.cli.failures import CommandFailed, Exit
from plimsoll_client.cli.session import Session
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.doctor import CHECKS
from plimsoll_contracts.scopes import DEFAULTS

Shell = Literal["bash", "zsh", "fish"]

CACHE_SECONDS = 60.0
"""For how long names that were asked for are taken as they were."""
_SCOPES_MAX = 5_000

WORDS = "--complete-words"
"""What a shell's function calls plimsoll with; no command of a person's."""

# Scopes have colons and limits have equals signs, which bash takes for ends of words: the line is read as it stands,
# and what bash believes to be there already is cut off again.
_BASH = """
_plimsoll_and_names() {
  _plimsoll "$@"
  local line="${COMP_LINE:0:COMP_POINT}" cur names
  cur="${line##* }"
  [[ ${#COMPREPLY[@]} -gt 0 || "$cur" == -* ]] && return
  mapfile -t names < <(%(words)s "$line" 2>/dev/null)
  local ends="${cur%%"${cur##*[:=]}"}" name
  for name in "${names[@]}"; do
    [[ "$name" == "$cur"* ]] && COMPREPLY+=("${name#"$ends"}")
  done
  [[ ${#COMPREPLY[@]} -eq 1 && "${COMPREPLY[0]}" == *= ]] && compopt -o nospace
}
complete -F _plimsoll_and_names plimsoll
"""


def script(app: App, shell: Shell) -> str:
    """Return what the shell reads at its start."""
    made = app.generate_completion(shell=shell)
    return made + _BASH % {"words": f"plimsoll {WORDS}"} if shell == "bash" else made


def install(app: App, shell: Shell | None) -> Path:
    """Write the script to where the shell finds it, have the shell read it, and return the file.

    Raises:
        CommandFailed: which shell it is cannot be told.
    """
    try:
        chosen = shell or detect_shell()
    except ShellDetectionError:
        raise CommandFailed(Exit.USAGE, "which shell is this?", "name it: --shell bash") from None
    if chosen == "powershell":
        raise CommandFailed(Exit.USAGE, f"there is no completion for {chosen}", f"one of {', '.join(get_args(Shell))}")
    file = app.install_completion(shell=chosen)
    file.write_text(script(app, chosen))
    return file


def words(app: App, line: str, session: Session) -> Iterable[str]:
    """Return what may stand where the line ends: names of scopes, tenants, dimensions or checks. Never fails."""
    before = line.split(" ")[1:-1]
    if before and before[-1] == "--only":
        return [check.name for check in CHECKS]
    try:
        command, function, given = _command(app, [word for word in before if word])
    except LookupError:
        return []
    found: Iterable[str] = ()
    match _next_positional(function, given):
        case "scope":
            found = [*_scopes(session), *([DEFAULTS] if command in ("set", "unset", "status") else [])]
        case "tenant":
            found = (scope for scope in _scopes(session) if "/" not in scope)
        case "limits":
            found = (f"{dimension}=" for dimension in Dimension)
        case "dimensions" | "dimension":
            found = Dimension
    return found


def _flags(app: App) -> set[str]:
    """Return the options of all commands that take no value."""
    found: set[str] = set()
    for name in app:
        if not name.startswith("-"):
            command = app[name].default_command
            parameters = inspect.signature(command).parameters.values() if command is not None else ()
            found |= {f"--{each.name.replace('_', '-')}" for each in parameters if each.annotation is bool}
            found |= _flags(app[name])
    return found


def _command(app: App, before: Sequence[str]) -> tuple[str, Callable[..., Any], int]:
    """Find the command that the words name, and how many positional arguments follow it."""
    name, given, skip, flags = "", 0, False, _flags(app)
    for word in before:
        if skip or word.startswith("-"):
            skip = word.startswith("-") and "=" not in word and word not in flags
        elif not given and word in app:
            app, name = app[word], word
        else:
            given += 1
    if app.default_command is None:
        raise LookupError(name)
    return name, app.default_command, given


def _next_positional(function: Callable[..., Any], given: int) -> str:
    names: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            return names[given] if given < len(names) else parameter.name
        if parameter.kind is not parameter.KEYWORD_ONLY:
            names.append(parameter.name)
    return names[given] if given < len(names) else ""


def _scopes(session: Session) -> list[str]:
    """Return every known scope, from the cache while it is fresh."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "plimsoll"
    file = folder / "scopes"
    try:
        if time.time() - file.stat().st_mtime < CACHE_SECONDS:
            return file.read_text().splitlines()
    except OSError:
        pass  # there is none yet
    try:
        known: list[str] = []
        for tenant in session.api.scopes(None):
            known += [tenant, *(scope for scope in session.api.scopes(tenant) if scope != tenant)]
            if len(known) >= _SCOPES_MAX:
                break
    except CommandFailed:
        return []
    known = [scope for scope in known if scope.isascii() and scope.isprintable() and " " not in scope]
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text("\n".join(known))
    except OSError:
        pass  # then they are asked for every time
    return known
