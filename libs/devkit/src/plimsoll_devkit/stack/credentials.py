"""With which key are tokens signed on this machine, and with which token do the command line and the tests ask?"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from plimsoll_client.cli.minting import SigningKey, make_key, read_key, write_secret
from plimsoll_contracts.access import ALL_TENANTS, Permission

ISSUER = "plimsoll-local"
AUDIENCE = "plimsoll"
OPERATOR = "admin"
"""The subject of the token that a stack comes with."""
_LIFETIME = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Credentials:
    """The files of one stack, in a folder that only its owner enters; made where they are missing."""

    folder: Path

    @property
    def key_file(self) -> Path:
        """The private key."""
        return self.folder / "key.pem"

    @property
    def jwks_file(self) -> Path:
        """The public key, which the services read."""
        return self.folder / "jwks.json"

    @property
    def token_file(self) -> Path:
        """A token for everything here."""
        return self.folder / "token"

    def make(self) -> None:
        """Make the key where there is none, and a new token."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = self.key if self.key_file.exists() else make_key(self.key_file)
        self.jwks_file.write_text(key.jwks() + "\n")
        write_secret(self.token_file, self.token() + "\n")

    def token(
        self,
        *,
        subject: str = OPERATOR,
        scopes: Iterable[str] = tuple(Permission),
        tenants: Iterable[str] | Literal["*"] = ALL_TENANTS,
        lifetime: timedelta = _LIFETIME,
    ) -> str:
        """Sign a token; all the rest is as the services of this stack expect."""
        now = datetime.now(UTC)
        return self.key.sign(
            issuer=ISSUER,
            audience=AUDIENCE,
            subject=subject,
            scopes=scopes,
            tenants=tenants,
            now=now,
            until=now + lifetime,
        )

    def header(self) -> Mapping[str, str]:
        """Return what a request for anything carries."""
        return {"Authorization": f"Bearer {self.token_file.read_text().strip()}"}

    def context(self) -> Mapping[str, str]:
        """Return what the command line is told of them."""
        return {
            "token_file": str(self.token_file),
            "signing_key": str(self.key_file),
            "issuer": ISSUER,
            "audience": AUDIENCE,
        }

    def settings(self) -> Mapping[str, str]:
        """Return what a service is told of them."""
        return {
            "PLIMSOLL_AUTH": "jwt",
            "PLIMSOLL_AUTH_ISSUER": ISSUER,
            "PLIMSOLL_AUTH_AUDIENCE": AUDIENCE,
            "PLIMSOLL_AUTH_JWKS": str(self.jwks_file),
        }

    @property
    def key(self) -> SigningKey:
        """The private key itself."""
        return read_key(self.key_file)
