"""How is a token made where no identity provider is: a signing key in a file of its owner's, and JWTs signed by it."""

import base64
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

ALGORITHM = "EdDSA"
OTHERS = 0o077


class KeyFileError(Exception):
    """The file holds no key that may be used; the text says why."""


@dataclass(frozen=True, slots=True, repr=False)
class SigningKey:
    """An Ed25519 key pair."""

    private: Ed25519PrivateKey

    @property
    def kid(self) -> str:
        """Its name: the thumbprint of RFC 7638, so the same key is never called two things."""
        members = {name: self._public[name] for name in ("crv", "kty", "x")}
        digest = hashlib.sha256(json.dumps(members, separators=(",", ":")).encode()).digest()
        return _base64(digest)

    @property
    def _public(self) -> dict[str, str]:
        raw = self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return {"kty": "OKP", "crv": "Ed25519", "x": _base64(raw)}

    def jwks(self) -> str:
        """Return what services check tokens with: the public half, as a JWKS."""
        return json.dumps({"keys": [{**self._public, "use": "sig", "alg": ALGORITHM, "kid": self.kid}]}, indent=2)

    def sign(
        self,
        *,
        issuer: str,
        audience: str,
        subject: str,
        scopes: Iterable[str],
        tenants: Iterable[str] | Literal["*"],
        now: datetime,
        until: datetime,
    ) -> str:
        """Return a token."""
        claims: dict[str, Any] = {
            "iss": issuer,
            "aud": audience,
            "sub": subject,
            "iat": int(now.timestamp()),
            "exp": int(until.timestamp()),
            "scope": " ".join(scopes),
            "tenants": tenants if tenants == "*" else list(tenants),
        }
        return jwt.encode(claims, self.private, ALGORITHM, headers={"kid": self.kid})


def make_key(file: Path) -> SigningKey:
    """Make a key in a new file that only its owner can read.

    Raises:
        FileExistsError: there is such a file.
    """
    key = SigningKey(Ed25519PrivateKey.generate())
    pem = key.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_secret(file, pem.decode(), new=True)
    return key


def read_key(file: Path) -> SigningKey:
    """Read a key.

    Raises:
        KeyFileError: it cannot be read, is no Ed25519 key in PEM, or others than its owner can read it too.
    """
    try:
        if file.stat().st_mode & OTHERS:
            raise KeyFileError(f"{file} can be read by others than its owner: chmod 600 it")
        key = load_pem_private_key(file.read_bytes(), password=None)
    except OSError as error:
        raise KeyFileError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError):
        raise KeyFileError(f"{file} holds no private key in PEM") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{file} holds a key of another kind than Ed25519")
    return SigningKey(key)


def write_secret(file: Path, text: str, *, new: bool = False) -> None:
    """Write a file that only its owner can read, from its first moment on.

    Raises:
        FileExistsError: it is to be new, and is there.
    """
    draft = file if new else file.with_name(f"{file.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
        handle.write(text)
    draft.replace(file)


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
