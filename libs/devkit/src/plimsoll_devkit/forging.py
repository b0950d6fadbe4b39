"""Which tokens must a service refuse: keys of every kind, good tokens of theirs, and the known forgeries."""

import base64
import hmac
import json
import time
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://id.example", "plimsoll"


@dataclass
class Key:
    """A key pair of some issuer."""

    kid: str
    algorithm: str
    private: Any
    public: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Derive what is published."""
        made: Any = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}[self.algorithm]
        self.public = {**made.to_jwk(self.private.public_key(), as_dict=True), "kid": self.kid}

    @property
    def pem(self) -> bytes:
        """Return the public half as a file would hold it."""
        public: bytes = self.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return public

    def sign(self, **claims: Any) -> str:
        """Return a token that passes, but for these claims."""
        return jwt.encode(claimed(**claims), self.private, self.algorithm, headers={"kid": self.kid})


def claimed(**claims: Any) -> dict[str, Any]:
    """Return claims that pass, with these instead or (None) left out."""
    now = int(time.time())
    good: dict[str, Any] = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "alice",
        "exp": now + 300,
        "scope": "quota:read",
        "tenants": ["acme"],
    }
    return {name: value for name, value in {**good, **claims}.items() if value is not None}


def rs256(kid: str = "rsa", bits: int = 2048) -> Key:
    """Make an RSA key."""
    return Key(kid, "RS256", rsa.generate_private_key(public_exponent=65537, key_size=bits))


def es256(kid: str = "ec") -> Key:
    """Make an elliptic key."""
    return Key(kid, "ES256", ec.generate_private_key(ec.SECP256R1()))


def eddsa(kid: str = "ed") -> Key:
    """Make an Edwards key."""
    return Key(kid, "EdDSA", ed25519.Ed25519PrivateKey.generate())


def unsigned(kid: str, algorithm: str = "none", **claims: Any) -> str:
    """Return a token without a signature."""
    return ".".join([_part({"alg": algorithm, "typ": "JWT", "kid": kid}), _part(claimed(**claims)), ""])


def hmac_signed(kid: str, secret: bytes, **claims: Any) -> str:
    """Sign with what everybody knows: the oldest forgery hopes that the checker takes its key for the secret."""
    signed = ".".join([_part({"alg": "HS256", "typ": "JWT", "kid": kid}), _part(claimed(**claims))])
    return f"{signed}.{_base64(hmac.digest(secret, signed.encode(), 'sha256'))}"


def tampered(token: str, **claims: Any) -> str:
    """Keep a good token's signature under other claims."""
    head, body, signature = token.split(".")
    known = json.loads(base64.urlsafe_b64decode(body + "=="))
    return ".".join([head, _part({**known, **claims}), signature])


def _part(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value).encode())


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
