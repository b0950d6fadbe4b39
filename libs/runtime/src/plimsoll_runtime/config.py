"""What is a process told from outside, where does each value come from, and what is wrong with it.

Every setting is an environment variable `PLIMSOLL_<FIELD>`, or a file named by `PLIMSOLL_<FIELD>_FILE`
(how orchestrators hand over secrets). An empty variable counts as not set.
"""

import difflib
import os
import sys
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import Field, PrivateAttr, SecretStr, StringConstraints, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "PLIMSOLL_"

_HOST_PORT = r"[A-Za-z0-9_.\-\[\]:]+:\d{1,5}"
HostPorts = Annotated[str, StringConstraints(pattern=rf"^{_HOST_PORT}(,{_HOST_PORT})*$")]


class Settings(BaseSettings):
    """What every process reads, also a job that runs once."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", frozen=True)

    log_format: Literal["auto", "json", "console"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    # Where each value came from; filled by load(), because only it looked.
    _sources: dict[str, str] = PrivateAttr(default_factory=dict)

    @field_validator("postgres_dsn", "migrate_dsn", check_fields=False)
    @classmethod
    def _is_postgres(cls, dsn: SecretStr) -> SecretStr:
        if not dsn.get_secret_value().startswith(("postgresql://", "postgres://")):
            # The value itself stays out of the message: it may hold a password.
            raise ValueError("must be a postgresql:// address")
        return dsn


class ServiceSettings(Settings):
    """What every long-running service reads; a service subclasses it with settings of its own."""

    kafka_bootstrap: HostPorts
    postgres_dsn: SecretStr
    http_host: str = "127.0.0.1"
    http_port: int = Field(default=8080, ge=0, le=65535)
    auth: Literal["off", "jwt"] = "jwt"
    auth_issuer: str | None = None
    auth_audience: str | None = None
    auth_jwks: str | None = Field(default=None, description="a file, or an https:// address")
    instance: int = Field(default=0, ge=0, description="stable ordinal of this replica")

    @model_validator(mode="after")
    def _is_guarded(self) -> Self:
        if self.auth == "off" and not is_loopback(self.http_host):
            raise _about("auth", f"off is for loopback only, and PLIMSOLL_HTTP_HOST is {self.http_host}: set it to jwt")
        missing = [name for name in ("auth_issuer", "auth_audience", "auth_jwks") if not getattr(self, name)]
        if self.auth == "jwt" and missing:
            raise _about("auth", f"jwt needs {', '.join(map(_variable, missing))}; on loopback it may be off")
        jwks = self.auth_jwks or ""
        if jwks.startswith("http://") and not is_loopback(urlsplit(jwks).hostname or ""):
            raise _about("auth_jwks", "whoever can change what is answered there is anybody here: write https://")
        return self


class MigrateSettings(Settings):
    """What a `migrate` job reads: the owner's address, and nothing of Kafka."""

    migrate_dsn: SecretStr


S = TypeVar("S", bound=Settings)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def load(cls: type[S]) -> S:
    """Read settings from the environment.

    Raises:
        SystemExit: with code 2, after every wrong setting was printed to standard error.
    """
    files, wrong = _read_files(cls, os.environ)
    sources = {field: _source(field, os.environ) for field in cls.model_fields}
    try:
        settings = cls(**files)
    except ValidationError as invalid:
        for error in invalid.errors(include_url=False, include_input=False):
            # A rule over several settings has no place; it says by its type which one to change.
            field = str(error["loc"][0]) if error["loc"] else error["type"]
            missing = error["type"] == "missing"
            wrong.setdefault(field, "is not set" if missing else error["msg"].removeprefix("Value error, "))
        _refuse(cls, wrong, sources)
    if wrong:
        _refuse(cls, wrong, sources)
    settings._sources.update(sources)
    return settings


def describe(settings: Settings) -> list[tuple[str, str, str]]:
    """Return (name, value, source) of every setting; a secret's value is replaced by `********`."""
    return [
        (_variable(field), _shown(getattr(settings, field)), settings._sources.get(field, "default"))  # noqa: SLF001
        for field in type(settings).model_fields
    ]


def strangers(cls: type[Settings], environ: Mapping[str, str]) -> list[str]:
    """Say of each variable that looks like a setting and is none which one was probably meant: it has no effect."""
    known = {name for field in cls.model_fields for name in (_variable(field), f"{_variable(field)}_FILE")}
    said = []
    for name in sorted(environ):
        if name.startswith(PREFIX) and name.upper() not in known:
            near = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.8)
            said.append(f"{name} is no setting of this process" + (f": did you mean {near[0]}?" if near else ""))
    return said


def render(rows: list[tuple[str, str, str]]) -> str:
    """Lay out the rows of `describe` as an aligned table, for `--check-config`."""
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    return "\n".join(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {source}" for name, value, source in rows)


def _about(field: str, what: str) -> PydanticCustomError:
    return PydanticCustomError(field, "{what}", {"what": what})


def _variable(field: str) -> str:
    return f"{PREFIX}{field.upper()}"


def _shown(value: object) -> str:
    return "********" if isinstance(value, SecretStr) else "-" if value is None else str(value)


def _source(field: str, environ: Mapping[str, str]) -> str:
    variable = _variable(field)
    if environ.get(variable):
        return f"environment {variable}"
    path = environ.get(f"{variable}_FILE")
    return f"file {path}" if path else "default"


def _read_files(cls: type[Settings], environ: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return (field -> content) of the `_FILE` variables and (field -> what is wrong)."""
    values: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for field in cls.model_fields:
        variable = _variable(field)
        path = environ.get(f"{variable}_FILE")
        if not path:
            continue
        if environ.get(variable):
            wrong[field] = f"is set twice: as {variable} and as {variable}_FILE"
            continue
        try:
            values[field] = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            wrong[field] = f"cannot be read: {error.strerror if isinstance(error, OSError) else 'not UTF-8'}"
    return values, wrong


def _refuse(cls: type[Settings], wrong: Mapping[str, str], sources: Mapping[str, str]) -> NoReturn:
    lines = [f"{len(wrong)} setting(s) wrong:"]
    for field, what in wrong.items():
        variable = _variable(field) if field in cls.model_fields else cls.__name__
        origin = sources.get(field, "default")
        hint = f"set {variable} or {variable}_FILE" if origin == "default" else f"from {origin}"
        lines.append(f"  {variable}: {what} ({hint})")
    print("\n".join(lines), file=sys.stderr)  # noqa: T201 - no logging yet: its settings are among the wrong
    raise SystemExit(2)
