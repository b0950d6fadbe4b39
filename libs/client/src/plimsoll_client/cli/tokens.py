"""What does ``plimsoll token`` do: make a bearer token with the local stack's key."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from plimsoll_client.cli.arguments import read_scope, read_until
from plimsoll_client.cli.context import read_context
from plimsoll_client.cli.failures import CommandFailed, Exit
from plimsoll_client.cli.minting import KeyFileError, read_key
from plimsoll_client.cli.session import In, Output
from plimsoll_contracts.access import ALL_TENANTS, Permission


def token(
    *,
    tenant: tuple[str, ...] = (),
    scope: tuple[str, ...] = (Permission.READ.value,),
    lifetime: Annotated[str, Parameter(name="--for")] = "1h",
    subject: str | None = None,
    key: Path | None = None,
    issuer: str | None = None,
    audience: str | None = None,
    session: In,
) -> Exit:
    """Make a bearer token: `export PLIMSOLL_TOKEN="$(plimsoll token --tenant acme --scope quota:read --for 1h)"`.

    Args:
        tenant: Whose limits and usage it is for, once for each; `*` is all tenants.
        scope: What its bearer may do, once for each: quota:read, quota:write (limits), quota:ask (verbs), quota:admin.
        lifetime: How long it holds: 30m, 2h, 7d.
        subject: Who its bearer is; your user name where it is not given.
        key: The private key that signs it; the local stack's where it is not given.
        issuer: As whom it is issued; as the local stack's services expect where it is not given.
        audience: For which service it is; as the local stack's services expect where it is not given.
        session: This run of the command.
    """
    if not tenant:
        raise CommandFailed(Exit.USAGE, "a token for no tenant", "name some with --tenant, or all with --tenant '*'")
    if unknown := set(scope).difference(Permission):
        raise CommandFailed(Exit.USAGE, f"there is no scope {unknown.pop()!r}", f"there are {', '.join(Permission)}")
    known: Mapping[str, str] = {} if key and issuer and audience else read_context()
    until = read_until(lifetime, session.now)
    assert until is not None  # noqa: S101 - a text was given
    try:
        signing = read_key(key or Path(_named(known, "signing_key")))
    except KeyFileError as error:
        raise CommandFailed(Exit.ERROR, str(error), "give another --key, or make one with `make up`") from None
    made = signing.sign(
        issuer=issuer or _named(known, "issuer"),
        audience=audience or _named(known, "audience"),
        subject=subject or session.user,
        scopes=scope,
        tenants=ALL_TENANTS if ALL_TENANTS in tenant else [read_scope(name).tenant for name in tenant],
        now=session.now,
        until=until,
    )
    if session.output is Output.TABLE:
        print(made)  # noqa: T201  data goes to stdout, on one line however narrow the terminal is
    else:
        told = {"token": made, "expires_at": until.isoformat()}
        session.show(told, lambda: "", [told])
    return Exit.OK


def _named(known: Mapping[str, str], name: str) -> str:
    value = known.get(name)
    if not value:
        raise CommandFailed(
            Exit.UNREACHABLE, f"the context file names no {name}", f"give --{name.replace('signing_', '')}"
        )
    return value
