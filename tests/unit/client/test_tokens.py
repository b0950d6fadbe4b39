"""Tokens at the command line: how one is made, which one is sent, and to whom."""

import json
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest

from plimsoll_client.cli.__main__ import run
from plimsoll_contracts.codes import SCOPE_MISSING, TOKEN_EXPIRED, TOKEN_INVALID, TOKEN_MISSING, Code
from plimsoll_devkit.loopback import Handler, serving
from plimsoll_devkit.stack.credentials import AUDIENCE, ISSUER, Credentials


class Service:
    """Remembers what it was shown, and refuses it with one code."""

    url = ""
    code: Code = TOKEN_MISSING

    def __init__(self) -> None:
        self.shown: list[str | None] = []


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()

    class Answers(Handler):
        def respond(self) -> None:
            made.shown.append(self.headers.get("authorization"))
            body = {"type": "x", "title": "t", "status": made.code.status, "code": made.code.code, "detail": "no"}
            encoded = json.dumps(body).encode()
            self.answer(made.code.status, encoded)

    with serving(Answers) as url:
        made.url = url
        yield made


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: Service) -> Credentials:
    """The local stack's, named by the context file in use."""
    made = Credentials(tmp_path / "auth")
    made.make()
    context = tmp_path / "context.json"
    context.write_text(json.dumps({"http": service.url, **made.context()}))
    monkeypatch.setenv("PLIMSOLL_CONTEXT", str(context))
    monkeypatch.delenv("PLIMSOLL_TOKEN", raising=False)
    return made


def claims(credentials: Credentials, token: str) -> dict[str, object]:
    key = credentials.key.private.public_key()
    read: dict[str, object] = jwt.decode(token, key, ["EdDSA"], audience=AUDIENCE, issuer=ISSUER)
    return read


def test_a_token_is_made_as_asked(credentials: Credentials, capsys: pytest.CaptureFixture[str]) -> None:
    command = "token --tenant acme --tenant globex --scope quota:read --scope quota:ask --for 1h --subject alice"
    assert run(command.split()) == 0
    out, err = capsys.readouterr()
    assert err == ""
    read = claims(credentials, out.strip())
    assert (read["sub"], read["scope"], read["tenants"]) == ("alice", "quota:read quota:ask", ["acme", "globex"])
    assert int(str(read["exp"])) - int(str(read["iat"])) == 3600
    assert jwt.get_unverified_header(out.strip())["kid"] == credentials.key.kid

    assert run(["token", "--tenant", "*", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert claims(credentials, told["token"])["tenants"] == "*"
    assert claims(credentials, told["token"])["scope"] == "quota:read", "no more than asked for"


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("token", 2, "--tenant"),
        ("token --tenant Acme", 2, "Acme"),
        ("token --tenant acme --scope quota:everything", 2, "quota:everything"),
        ("token --tenant acme --for yesterday", 2, "yesterday"),
        ("token --tenant acme --key /nonexistent/key.pem", 1, "cannot be read"),
        ("token --tenant acme --key /dev/null", 1, "chmod 600"),
    ],
)
def test_what_cannot_be_made_is_said(
    credentials: Credentials, capsys: pytest.CaptureFixture[str], command: str, code: int, said: str
) -> None:
    assert credentials.key_file.exists()
    assert run(command.split()) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err


def test_a_key_that_others_can_read_is_not_used(credentials: Credentials, capsys: pytest.CaptureFixture[str]) -> None:
    credentials.key_file.chmod(0o644)
    assert run(["token", "--tenant", "acme"]) == 1
    assert "chmod 600" in capsys.readouterr().err


def test_the_file_comes_before_the_variable_before_the_context(
    service: Service, credentials: Credentials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").write_text("from-a-file\n")
    run(["quota", "status", "acme"])
    monkeypatch.setenv("PLIMSOLL_TOKEN", "from-the-variable")
    run(["quota", "status", "acme"])
    run(["quota", "status", "acme", "--token-file", str(tmp_path / "mine")])
    assert service.shown == [
        f"Bearer {credentials.token_file.read_text().strip()}",
        "Bearer from-the-variable",
        "Bearer from-a-file",
    ]


def test_the_contexts_token_is_for_the_contexts_service(
    service: Service, credentials: Credentials, tmp_path: Path
) -> None:
    other = {"http": "http://127.0.0.1:1", **credentials.context()}
    (tmp_path / "context.json").write_text(json.dumps(other))
    run(["quota", "status", "acme", "--url", service.url])
    assert service.shown == [None], "another address is shown nothing"


@pytest.mark.parametrize("content", ["", "two words", "line\nline", "t\u00f6ken"])
def test_what_is_no_token_is_not_sent_and_not_shown(
    service: Service, credentials: Credentials, capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str
) -> None:
    del credentials
    (tmp_path / "mine").write_text(content)
    assert run(["quota", "status", "acme", "--token-file", str(tmp_path / "mine")]) == 7
    err = capsys.readouterr().err
    assert "holds no token" in err
    assert not content or content not in err
    assert service.shown == []


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (TOKEN_MISSING, "give a token with --token-file or $PLIMSOLL_TOKEN"),
        (TOKEN_EXPIRED, "give a new token"),
        (TOKEN_INVALID, "give another token"),
        (SCOPE_MISSING, "give one with that scope"),
    ],
)
def test_a_refused_token_says_what_to_do(
    service: Service, credentials: Credentials, capsys: pytest.CaptureFixture[str], code: Code, said: str
) -> None:
    service.code = code
    assert run(["quota", "status", "acme"]) == 7
    err = capsys.readouterr().err
    assert code.code in err
    assert said in err
    assert credentials.token_file.read_text().strip() not in err


@pytest.fixture
def found_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where a context lies that nobody named: in a folder above, as a stranger's archive would bring it."""
    monkeypatch.delenv("PLIMSOLL_CONTEXT", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "unpacked" / ".local"
    (tmp_path / "unpacked" / "src").mkdir(parents=True)
    folder.mkdir()
    monkeypatch.chdir(tmp_path / "unpacked" / "src")
    return folder / "context.json"


def test_a_context_that_was_only_found_cannot_have_a_file_of_mine_sent(
    service: Service, found_here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "id_ed25519"
    mine.write_text("my-private-key")
    found_here.write_text(json.dumps({"http": service.url, "token_file": str(mine)}))
    assert run(["quota", "list"]) == 1
    assert service.shown == []
    assert "names a token outside its folder" in capsys.readouterr().err
    (found_here.parent / "link").symlink_to(mine)
    found_here.write_text(json.dumps({"http": service.url, "token_file": str(found_here.parent / "link")}))
    assert (run(["quota", "list"]), service.shown) == (1, [])


def test_a_context_that_was_only_found_cannot_have_my_token_sent_elsewhere(
    found_here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLIMSOLL_TOKEN", "mine")
    found_here.write_text(json.dumps({"http": "https://quota.invalid"}))
    assert run(["quota", "list"]) == 1
    assert "names quota.invalid" in capsys.readouterr().err


def test_the_local_stacks_context_is_found_and_its_token_sent(service: Service, found_here: Path) -> None:
    (found_here.parent / "token").write_text("local")
    found_here.write_text(json.dumps({"http": service.url, "token_file": str(found_here.parent / "token")}))
    run(["quota", "list"])
    assert service.shown == ["Bearer local"]
