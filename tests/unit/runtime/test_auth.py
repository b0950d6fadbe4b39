"""Bearer tokens: who passes, and every way not to."""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import pytest

from plimsoll_contracts import codes
from plimsoll_devkit.forging import (
    AUDIENCE,
    ISSUER,
    Key,
    claimed,
    eddsa,
    es256,
    hmac_signed,
    rs256,
    tampered,
    unsigned,
)
from plimsoll_devkit.loopback import Handler, serving
from plimsoll_runtime import keys as limits
from plimsoll_runtime.auth import LEEWAY_SECONDS, Principal, TokenCheck, let_anybody
from plimsoll_runtime.http import Problem
from plimsoll_runtime.keys import KeySet, KeysUnreadableError, parse

RSA, EC, ED, STRANGER = rs256(), es256(), eddsa(), eddsa()
KNOWN = [RSA, EC, ED]


def jwks(*keys: Key) -> bytes:
    return json.dumps({"keys": [key.public for key in keys]}).encode()


@pytest.fixture
def check(tmp_path: Path) -> TokenCheck:
    (tmp_path / "jwks.json").write_bytes(jwks(*KNOWN))
    return TokenCheck(KeySet(str(tmp_path / "jwks.json")), issuer=ISSUER, audience=AUDIENCE)


@pytest.mark.parametrize("key", KNOWN, ids=lambda key: key.algorithm)
async def test_a_good_token_says_who_and_what(check: TokenCheck, key: Key) -> None:
    token = key.sign(scope="quota:read quota:ask", tenants=["acme", "globex"], aud=["other", AUDIENCE])
    assert await check([f"Bearer {token}"]) == Principal(
        "alice", frozenset({"quota:read", "quota:ask"}), frozenset({"acme", "globex"})
    )
    everywhere = await check([f"bearer {key.sign(tenants='*', scope=None)}"])
    assert (everywhere.tenants, everywhere.scopes) == (None, frozenset())


async def test_a_token_without_tenants_has_none(check: TokenCheck) -> None:
    principal = await check([f"Bearer {ED.sign(tenants=None)}"])
    assert principal.tenants == frozenset()
    assert not principal.may_see("acme")


async def test_a_little_difference_of_clocks_is_let_pass(check: TokenCheck) -> None:
    assert await check([f"Bearer {ED.sign(exp=int(time.time()) - LEEWAY_SECONDS + 10)}"])


NOW = int(time.time())
REFUSED: dict[str, tuple[str, codes.Code]] = {
    "garbage": ("garbage", codes.TOKEN_INVALID),
    "three parts of garbage": ("a.b.c", codes.TOKEN_INVALID),
    "expired": (ED.sign(exp=NOW - 45), codes.TOKEN_EXPIRED),
    "without an end": (ED.sign(exp=None), codes.TOKEN_INVALID),
    "an end that is no number": (ED.sign(exp="never"), codes.TOKEN_INVALID),
    "not yet": (ED.sign(nbf=NOW + 600), codes.TOKEN_INVALID),
    "another audience": (ED.sign(aud="other"), codes.TOKEN_INVALID),
    "no audience": (ED.sign(aud=None), codes.TOKEN_INVALID),
    "another issuer": (ED.sign(iss="https://evil.example"), codes.TOKEN_INVALID),
    "no issuer": (ED.sign(iss=None), codes.TOKEN_INVALID),
    "no subject": (ED.sign(sub=None), codes.TOKEN_INVALID),
    "an empty subject": (ED.sign(sub=""), codes.TOKEN_INVALID),
    "a subject that acts on terminals": (ED.sign(sub="al\x1b[2Jice"), codes.TOKEN_INVALID),
    "a long subject": (ED.sign(sub="a" * 201), codes.TOKEN_INVALID),
    "scopes as a list": (ED.sign(scope=["quota:read"]), codes.TOKEN_INVALID),
    "one tenant as a text": (ED.sign(tenants="acme"), codes.TOKEN_INVALID),
    "a star among tenants": (ED.sign(tenants=["*"]), codes.TOKEN_INVALID),
    "tenants that are no texts": (ED.sign(tenants=[["acme"]]), codes.TOKEN_INVALID),
    "a key of ours, another's signature": (eddsa(ED.kid).sign(), codes.TOKEN_INVALID),
    "a key nobody knows": (eddsa("unknown").sign(), codes.TOKEN_INVALID),
    "other claims under the signature": (tampered(ED.sign(), tenants="*"), codes.TOKEN_INVALID),
    "no signature": (unsigned(ED.kid), codes.TOKEN_INVALID),
    "no signature, alg spelt otherwise": (unsigned(ED.kid, "nOnE"), codes.TOKEN_INVALID),
    "no signature, alg of the key": (unsigned(ED.kid, "EdDSA"), codes.TOKEN_INVALID),
    "the public key as a secret": (hmac_signed(RSA.kid, RSA.pem), codes.TOKEN_INVALID),
    "the published key as a secret": (hmac_signed(RSA.kid, RSA.public["n"].encode()), codes.TOKEN_INVALID),
    "one key's algorithm with another key": (Key(RSA.kid, "EdDSA", ED.private).sign(), codes.TOKEN_INVALID),
    "longer than anybody needs": (ED.sign(padding="x" * 20_000), codes.TOKEN_INVALID),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_token_that_does_not_hold_is_refused(check: TokenCheck, what: str) -> None:
    token, code = REFUSED[what]
    with pytest.raises(Problem) as refused:
        await check([f"Bearer {token}"])
    assert refused.value.code == code
    assert refused.value.headers is not None
    assert refused.value.headers["WWW-Authenticate"].startswith('Bearer realm="plimsoll", error="invalid_token"')
    assert token not in refused.value.detail


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ([], codes.TOKEN_MISSING),
        ([""], codes.TOKEN_INVALID),
        (["Bearer"], codes.TOKEN_INVALID),
        (["Bearer "], codes.TOKEN_INVALID),
        ([f"Basic {ED.sign()}"], codes.TOKEN_INVALID),
        ([ED.sign()], codes.TOKEN_INVALID),
        ([f"Bearer {ED.sign()}", f"Bearer {ED.sign()}"], codes.TOKEN_INVALID),
        ([f"Bearer {ED.sign()}, Bearer {ED.sign()}"], codes.TOKEN_INVALID),
    ],
)
async def test_exactly_one_bearer_token_is_wanted(check: TokenCheck, values: list[str], code: codes.Code) -> None:
    with pytest.raises(Problem) as refused:
        await check(values)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "header",
    [{}, {"kid": "mine", "jwk": STRANGER.public}, {"kid": "ed", "crit": ["b64"], "b64": True}],
    ids=["no key is named", "a key is brought along", "more is asked than is understood"],
)
async def test_the_header_only_names_a_key_of_ours(check: TokenCheck, header: dict[str, Any]) -> None:
    private = STRANGER.private if "jwk" in header else ED.private
    with pytest.raises(Problem) as refused:
        await check([f"Bearer {jwt.encode(claimed(), private, 'EdDSA', headers=header)}"])
    assert refused.value.code == codes.TOKEN_INVALID


async def test_off_lets_anybody_be_nobody_in_particular() -> None:
    assert (await let_anybody([])).subject is None


def test_keys_of_no_use_are_left_out() -> None:
    weak = rs256("weak", 1024)
    listed: list[Any] = [
        {"kty": "oct", "kid": "secret", "k": "c2VjcmV0"},
        {**ED.public, "kid": "encrypting", "use": "enc"},
        {**ED.public, "kid": "other-algorithm", "alg": "HS256"},
        {**ED.public, "kid": 7},
        {name: value for name, value in ED.public.items() if name != "kid"},
        {"kty": "EC", "crv": "P-384", "kid": "p384", "x": "AA", "y": "AA"},
        {"kty": "OKP", "crv": "Ed25519", "kid": "broken", "x": "AA"},
        weak.public,
    ]
    assert list(parse(json.dumps({"keys": [*listed, ED.public]}).encode())) == ["ed"]
    with pytest.raises(KeysUnreadableError, match="no usable key"):
        parse(json.dumps({"keys": listed}).encode())


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"keys": 1}', b'{"keys": [1]}', b"\xff", b"[" * 100_000, b" " * 300_000 + jwks(ED)]
)
def test_what_is_no_key_set_is_said_to_be_none(content: bytes) -> None:
    with pytest.raises(KeysUnreadableError):
        parse(content)


@dataclass
class Issuer:
    """An identity provider's address of keys, on a port of its own."""

    url: str = ""
    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    asked: int = 0
    slow: float = 0.0


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer(body=jwks(ED))

    class Answers(Handler):
        def respond(self) -> None:
            made.asked += 1
            if self.path == "/elsewhere":
                made.status, made.body, made.headers = 200, jwks(EC), {}
            self.send_response(made.status)
            for name, value in made.headers.items():
                self.send_header(name, value)
            self.end_headers()
            for piece in (made.body[:1], made.body[1:]):
                self.wfile.write(piece)
                self.wfile.flush()
                time.sleep(made.slow)

    with serving(Answers) as url:
        made.url = f"{url}/jwks"
        yield made


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


async def found(keys: KeySet, kid: str) -> bool:
    return await keys.find(kid) is not None


async def test_an_unknown_key_is_asked_for_at_most_once_a_minute(issuer: Issuer) -> None:
    clock = Clock()
    keys = KeySet(issuer.url, clock=clock)
    assert await found(keys, "ed")
    issuer.body = jwks(ED, EC)
    for _ in range(50):
        assert not await found(keys, "ec"), "within the minute"
    assert issuer.asked == 1
    clock.now = 60.0
    assert await asyncio.gather(*(found(keys, "ec") for _ in range(20))) == [True] * 20
    assert issuer.asked == 2, "and all who wait share the one answer"


async def test_a_key_that_was_withdrawn_is_forgotten(issuer: Issuer) -> None:
    clock = Clock()
    keys = KeySet(issuer.url, clock=clock)
    assert await found(keys, "ed")
    issuer.body = jwks(EC)
    clock.now = limits.OLD_SECONDS
    assert not await found(keys, "ed")
    assert await found(keys, "ec")


@pytest.mark.parametrize("trouble", ["away", "status", "no key set", "too large", "redirected", "slow"])
async def test_an_address_in_trouble_keeps_the_keys_that_were_known(
    issuer: Issuer, trouble: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    keys = KeySet(issuer.url, clock=clock)
    assert await found(keys, "ed")
    match trouble:
        case "away":
            keys._source = "http://127.0.0.1:1/jwks"
        case "status":
            issuer.status = 500
        case "no key set":
            issuer.body = b"<html>"
        case "too large":
            issuer.body = b" " * 300_000 + jwks(EC)
        case "redirected":
            issuer.status, issuer.headers = 302, {"location": "/elsewhere"}
        case "slow":
            monkeypatch.setattr(limits, "FETCH_SECONDS", 0.2)
            issuer.slow = 0.5
    clock.now = 1000.0
    assert await found(keys, "ed")
    assert "keys not read; those known stay" in capsys.readouterr().out


async def test_keys_that_were_never_readable_are_our_fault_not_the_tokens(issuer: Issuer) -> None:
    clock = Clock()
    issuer.status = 503
    check = TokenCheck(KeySet(issuer.url, clock=clock), issuer=ISSUER, audience=AUDIENCE)
    for _ in range(2):
        with pytest.raises(Problem) as unavailable:
            await check([f"Bearer {ED.sign()}"])
        assert unavailable.value.code == codes.KEYS_UNAVAILABLE
    assert issuer.asked == 1
    issuer.status, clock.now = 200, 5.0
    assert (await check([f"Bearer {ED.sign()}"])).subject == "alice"


async def test_no_proxy_of_the_environment_is_asked(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert await found(KeySet(issuer.url), "ed")


async def test_a_file_is_read_again_when_a_key_is_unknown(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "jwks.json"
    file.write_bytes(jwks(ED))
    keys = KeySet(str(file), clock=clock)
    assert await found(keys, "ed")
    file.write_bytes(jwks(ED, EC))
    clock.now = 60.0
    assert await found(keys, "ec")
    file.unlink()
    clock.now = 1000.0
    assert await found(keys, "ed")
