"""Which public keys are tokens checked with: a JWKS file or address, read again when it is old or a key is unknown."""

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx
import structlog
from jwt import PyJWK
from jwt.exceptions import PyJWTError

ALGORITHMS: Mapping[tuple[str, str | None], str] = {
    ("RSA", None): "RS256",
    ("EC", "P-256"): "ES256",
    ("OKP", "Ed25519"): "EdDSA",
}
"""The one algorithm of each kind of key. None is symmetric: who can check must not be able to sign."""

FETCH_SECONDS = 3.0
BYTES_MAX = 262_144
KEYS_MAX = 100
RSA_BITS_MIN = 2048
AGAIN_SECONDS = 60.0
"""Not read more often than this, whatever tokens name: a stranger's token must not make us ask somebody else."""
AGAIN_AT_FIRST_SECONDS = 5.0
"""The same while none could be read yet, when no token passes anyway."""
OLD_SECONDS = 300.0
"""Read again after this, so that a key that was withdrawn is forgotten."""

log = structlog.get_logger("plimsoll.auth")


class KeysUnreadableError(Exception):
    """The key set is away, or is none; the text says why."""


class KeySet:
    """The public keys at one place, by their ``kid``."""

    def __init__(self, source: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Describe where they are: ``https://...`` (``http://`` on loopback), else a file. Nothing is read yet."""
        self._source = source
        self._clock = clock
        self._keys: Mapping[str, PyJWK] = {}
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._lock = asyncio.Lock()

    async def find(self, kid: str) -> PyJWK | None:
        """Return a key, or None where there is none of that name.

        Raises:
            KeysUnreadableError: the key set could never be read.
        """
        if kid not in self._keys or self._is_before(self._read_at, OLD_SECONDS):
            async with self._lock:
                again = AGAIN_AT_FIRST_SECONDS if self._read_at is None else AGAIN_SECONDS
                if self._is_before(self._tried_at, again):
                    await self._refresh()
        if self._read_at is None:
            raise KeysUnreadableError(f"{self._source} could not be read yet")
        return self._keys.get(kid)

    async def load(self) -> None:
        """Read the key set now.

        Raises:
            KeysUnreadableError: it is away or is none; what was known stays.
        """
        self._tried_at = self._clock()
        self._keys = parse(await self._read())
        self._read_at = self._clock()

    async def _refresh(self) -> None:
        try:
            await self.load()
        except KeysUnreadableError as error:
            log.warning("keys not read; those known stay", source=self._source, problem=str(error))

    def _is_before(self, moment: float | None, seconds: float) -> bool:
        return moment is None or self._clock() - moment >= seconds

    async def _read(self) -> bytes:
        return await _fetch(self._source) if is_address(self._source) else _read_file(self._source)


def is_address(source: str) -> bool:
    """Whether keys come over HTTP."""
    return source.startswith(("http://", "https://"))


def parse(content: bytes) -> Mapping[str, PyJWK]:
    """Read a JWKS. Keys that are of no use here (symmetric, encrypting, weak, nameless) are left out.

    Raises:
        KeysUnreadableError: it is too large, is no JWKS, or has no usable key.
    """
    if len(content) > BYTES_MAX:
        raise KeysUnreadableError(f"more than {BYTES_MAX} bytes")
    try:
        listed = json.loads(content)["keys"]
        named = {jwk["kid"]: jwk for jwk in listed[:KEYS_MAX] if isinstance(jwk.get("kid"), str)}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise KeysUnreadableError("not a JWKS") from None
    keys = {kid: key for kid, jwk in named.items() if (key := _usable(jwk)) is not None}
    if not keys:
        raise KeysUnreadableError("no usable key: RSA from 2048 bits, EC P-256 or Ed25519, with a kid")
    return keys


def _usable(jwk: Mapping[str, object]) -> PyJWK | None:
    kind, curve = jwk.get("kty"), jwk.get("crv")
    algorithm = ALGORITHMS.get((str(kind), str(curve) if curve is not None else None))
    if algorithm is None or jwk.get("use", "sig") != "sig" or jwk.get("alg", algorithm) != algorithm:
        return None
    try:
        # Only what is public of it, should somebody have published the whole pair.
        key = PyJWK({name: jwk[name] for name in ("kty", "crv", "kid", "n", "e", "x", "y") if name in jwk}, algorithm)
    except (PyJWTError, ValueError, TypeError):
        return None
    return None if algorithm == "RS256" and key.key.key_size < RSA_BITS_MIN else key


def _read_file(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(BYTES_MAX + 1)
    except OSError as error:
        raise KeysUnreadableError(f"{path}: {error.strerror}") from None


async def _fetch(address: str) -> bytes:
    """Ask for the key set: bounded in time and size, straight there, no further."""
    try:
        async with (
            asyncio.timeout(FETCH_SECONDS),
            # The machine's own authorities, so that a house can have one: httpx would bring a list along.
            httpx.AsyncClient(verify=ssl.create_default_context(), trust_env=False, follow_redirects=False) as http,
            http.stream("GET", address, headers={"Accept": "application/json"}) as answer,
        ):
            if answer.status_code != httpx.codes.OK:
                raise KeysUnreadableError(f"answered {answer.status_code}")
            content = bytearray()
            async for piece in answer.aiter_bytes():
                content += piece
                if len(content) > BYTES_MAX:
                    raise KeysUnreadableError(f"more than {BYTES_MAX} bytes")
            return bytes(content)
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
        raise KeysUnreadableError(str(error) or type(error).__name__) from None
