"""What does ``plimsoll doctor`` do: what can be looked at from here, then what the service finds about itself."""

import base64
import json
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from urllib.parse import urlsplit

from plimsoll_client.cli import render
from plimsoll_client.cli.context import bearer_token, find_context, read_context, service_url
from plimsoll_client.cli.failures import CommandFailed, Exit
from plimsoll_client.cli.figures import clean, span
from plimsoll_client.cli.session import In, Session, watchable
from plimsoll_contracts.doctor import BY_NAME, CHECKS, Diagnosis, Finding, Verdict, found, not_looked_at

_CONNECT_SECONDS = 1.0
_SOON_SECONDS = 600
_PARTS = ("kafka", "postgres")


@watchable
def doctor(*, only: Sequence[str] = (), fix_hint: bool = False, session: In) -> Exit:
    """Look for what is wrong, causes before symptoms; each finding says what to do next.

    Exits with 0 where all is well, 4 where something deserves a look or could not be looked at, 1 where something
    has failed, 7 and 8 where the service does not let us in or does not answer.

    Args:
        only: Just this check, and what it needs; may be given several times.
        fix_hint: Print nothing but what to do next, a line for each finding that is not ok.
        session: This run of the command.
    """
    if unknown := [name for name in only if name not in BY_NAME]:
        raise CommandFailed(Exit.USAGE, f"there is no check {unknown[0]!r}", f"one of {', '.join(BY_NAME)}")
    findings, failure = _examine(session, only)
    rows = [each.model_dump(mode="json") for each in findings]
    if fix_hint:
        steps = list(dict.fromkeys(clean(each.next) for each in findings if each.next))
        session.show({"next": steps}, lambda: render.lines(steps), [{"next": step} for step in steps])
    else:
        worst = max((each.verdict for each in findings), key=_SEVERITY.__getitem__, default=Verdict.OK)
        session.show({"verdict": worst, "findings": findings}, lambda: render.findings(findings), rows)
        session.say(_summary(findings))
    return _exit(findings, failure)


_SEVERITY = {Verdict.OK: 0, Verdict.UNKNOWN: 1, Verdict.WARN: 2, Verdict.FAIL: 3}


def _exit(findings: Iterable[Finding], failure: CommandFailed | None) -> Exit:
    if failure is not None:
        return failure.code
    verdicts = {each.verdict for each in findings}
    if Verdict.FAIL in verdicts:
        return Exit.ERROR
    return Exit.OK if verdicts <= {Verdict.OK} else Exit.DEGRADED


def _summary(findings: Sequence[Finding]) -> str:
    counts = {verdict: sum(each.verdict is verdict for each in findings) for verdict in reversed(Verdict)}
    words = {Verdict.FAIL: "failed", Verdict.WARN: "to look at", Verdict.UNKNOWN: "not looked at", Verdict.OK: "ok"}
    return ", ".join(f"{count} {words[verdict]}" for verdict, count in counts.items() if count)


def _examine(session: Session, only: Sequence[str]) -> tuple[list[Finding], CommandFailed | None]:
    """Return the findings in the order of the checks, and why the service could not be asked, if so."""
    try:
        url, told = _address(session)
    except CommandFailed as failure:
        lost = found("address", Verdict.FAIL, failure.message, failure.hint)
        return [lost, *_pointless([lost], only)], failure
    here = [found("address", Verdict.OK, told), _parts(session)]
    began = time.monotonic()
    try:
        here.append(_token(bearer_token(session.token_file, url), session.now))
    except CommandFailed as failure:
        here.append(found("token", Verdict.FAIL, failure.message, failure.hint))
        return [*_asked(here, only), *_pointless(here, only)], failure
    try:
        diagnosis = session.api.diagnosis([name for name in only if not BY_NAME[name].is_local])
    except CommandFailed as failure:
        here.append(found("service", Verdict.FAIL, failure.message, failure.hint))
        return [*_asked(here, only), *_pointless(here, only)], failure
    here.append(_service(diagnosis, url, time.monotonic() - began))
    served = diagnosis.findings if not only or any(not BY_NAME[name].is_local for name in only) else ()
    return [*_asked(here, only), *served], None


def _asked(findings: Iterable[Finding], only: Sequence[str]) -> Iterable[Finding]:
    """Keep what was asked for, and whatever has failed: it may be the cause."""
    return (each for each in findings if not only or each.check in only or each.verdict is Verdict.FAIL)


def _pointless(before: Sequence[Finding], only: Sequence[str]) -> Iterable[Finding]:
    """Say of each other check why it was not looked at."""
    done = {each.check for each in before}
    for check in CHECKS:
        if check.name in done or (only and check.name not in only):
            continue
        told = "not looked at: the service was not asked"
        yield not_looked_at(check.name, before) or Finding(check=check.name, verdict=Verdict.UNKNOWN, told=told)


def _address(session: Session) -> tuple[str, str]:
    url = service_url(session.url)
    return url, f"{url}, as given" if session.url else f"{url}, from {find_context()}"


def _parts(session: Session) -> Finding:
    if session.url:
        return found("parts", Verdict.OK, "an address was given, so nothing is known here of broker and database")
    known = {name: place for name, place in _places(read_context()).items() if name in _PARTS}
    states = {f"{name} at {host}:{port}": _connects(host, port) for name, (host, port) in known.items()}
    told = ", ".join(f"{name} {state or 'accepts connections'}" for name, state in states.items())
    if not states:
        return found("parts", Verdict.OK, "the context file names neither broker nor database")
    return found("parts", Verdict.FAIL if any(states.values()) else Verdict.OK, told)


def _places(context: Mapping[str, str]) -> Mapping[str, tuple[str, int]]:
    found_at: dict[str, tuple[str, int]] = {}
    for name, address in context.items():
        try:
            split = urlsplit(address if "://" in address else f"//{address.split(',')[0]}")
            if split.hostname and split.port:
                found_at[name] = (split.hostname, split.port)
        except ValueError:  # no port: nothing to try
            continue
    return found_at


def _connects(host: str, port: int) -> str:
    """Say why nobody listens there; empty where somebody does."""
    try:
        socket.create_connection((host, port), _CONNECT_SECONDS).close()
    except OSError as error:
        return f"does not accept connections ({error.strerror or error})"
    return ""


def _token(token: str | None, now: datetime) -> Finding:
    """Read what a token says of itself; whether it is true is the service's to judge."""
    if token is None:
        return found("token", Verdict.OK, "none is given, which does where the service asks for none")
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        until, subject = datetime.fromtimestamp(claims["exp"], UTC), claims.get("sub", "nobody")
    except (IndexError, ValueError, KeyError, TypeError, OverflowError):
        return found("token", Verdict.WARN, "there is one, and it does not say until when it holds")
    left = (until - now).total_seconds()
    if left <= 0:
        return found("token", Verdict.FAIL, f"the token of {subject} expired {span(-left)} ago")
    verdict = Verdict.WARN if left < _SOON_SECONDS else Verdict.OK
    return found("token", verdict, f"the token of {subject} holds for {span(left)} more")


def _service(diagnosis: Diagnosis, url: str, seconds: float) -> Finding:
    told = f"{diagnosis.service} {diagnosis.version} ({diagnosis.instance}) at {url} answered after {seconds:.1f} s"
    ours = version("plimsoll-client")
    if diagnosis.version == ours:
        return found("service", Verdict.OK, told)
    return found("service", Verdict.WARN, f"{told}; this command is {ours}", "install the command of that version")
