from pathlib import Path

import pytest
from pydantic import SecretStr

from plimsoll_runtime import config

GOOD = {
    "PLIMSOLL_KAFKA_BOOTSTRAP": "127.0.0.1:9092",
    "PLIMSOLL_POSTGRES_DSN": "postgresql://svc:hunter2@127.0.0.1/plimsoll",
    "PLIMSOLL_AUTH": "off",
}


class Example(config.ServiceSettings):
    sweep_seconds: int = 5
    token: SecretStr | None = None


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in Example.model_fields:
        monkeypatch.delenv(f"PLIMSOLL_{field.upper()}", raising=False)
        monkeypatch.delenv(f"PLIMSOLL_{field.upper()}_FILE", raising=False)


def given(monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def test_every_wrong_setting_is_named_at_once_with_its_source(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(
        monkeypatch,
        PLIMSOLL_KAFKA_BOOTSTRAP="no port here",
        PLIMSOLL_HTTP_PORT="eighty",
        PLIMSOLL_TOKEN_FILE="/does/not/exist",  # noqa: S106 - a path
    )

    with pytest.raises(SystemExit) as stopped:
        config.load(Example)

    said = capsys.readouterr().err
    assert stopped.value.code == 2
    assert "4 setting(s) wrong" in said
    assert "PLIMSOLL_KAFKA_BOOTSTRAP: String should match" in said
    assert "PLIMSOLL_HTTP_PORT: Input should be a valid integer" in said
    assert "(from environment PLIMSOLL_HTTP_PORT)" in said
    assert "PLIMSOLL_POSTGRES_DSN: is not set (set PLIMSOLL_POSTGRES_DSN or PLIMSOLL_POSTGRES_DSN_FILE)" in said
    assert "PLIMSOLL_TOKEN: cannot be read: No such file or directory" in said


def test_a_secret_never_appears_in_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, PLIMSOLL_KAFKA_BOOTSTRAP="a:1", PLIMSOLL_POSTGRES_DSN="mysql://svc:hunter2@db/x")

    with pytest.raises(SystemExit):
        config.load(Example)

    said = capsys.readouterr()
    assert "PLIMSOLL_POSTGRES_DSN: must be a postgresql:// address" in said.err
    assert "hunter2" not in said.out + said.err


def test_description_names_sources_and_hides_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secret = tmp_path / "dsn"
    secret.write_text("postgresql://svc:hunter2@db/plimsoll\n")
    given(
        monkeypatch,
        PLIMSOLL_KAFKA_BOOTSTRAP="k1:9092,k2:9092",
        PLIMSOLL_POSTGRES_DSN_FILE=str(secret),
        PLIMSOLL_HTTP_PORT="",  # empty counts as not set
        PLIMSOLL_AUTH="off",
    )

    settings = config.load(Example)
    rows = {name: (value, source) for name, value, source in config.describe(settings)}

    assert settings.postgres_dsn.get_secret_value() == "postgresql://svc:hunter2@db/plimsoll"
    assert rows["PLIMSOLL_KAFKA_BOOTSTRAP"] == ("k1:9092,k2:9092", "environment PLIMSOLL_KAFKA_BOOTSTRAP")
    assert rows["PLIMSOLL_POSTGRES_DSN"] == ("********", f"file {secret}")
    assert rows["PLIMSOLL_HTTP_PORT"] == ("8080", "default")
    assert rows["PLIMSOLL_SWEEP_SECONDS"] == ("5", "default")
    assert rows["PLIMSOLL_TOKEN"] == ("-", "default")
    assert "hunter2" not in config.render(config.describe(settings)) + repr(settings)


def test_a_setting_given_twice_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dsn").write_text("postgresql://other@db/plimsoll")
    given(monkeypatch, **GOOD, PLIMSOLL_POSTGRES_DSN_FILE=str(tmp_path / "dsn"))

    with pytest.raises(SystemExit):
        config.load(Example)

    assert "is set twice" in capsys.readouterr().err


def test_a_migrate_job_needs_only_the_owners_address(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, PLIMSOLL_MIGRATE_DSN="postgresql://plimsoll_owner@127.0.0.1/plimsoll")

    assert config.load(config.MigrateSettings).migrate_dsn.get_secret_value().startswith("postgresql://")


def test_a_variable_without_effect_is_named_with_what_was_probably_meant() -> None:
    environ = {
        **GOOD,
        "PLIMSOLL_HTTP_PROT": "1",
        "PLIMSOLL_TOKEN_FILE": "/t",
        "plimsoll_http_port": "1",
        "HTTP_PORT": "",
    }
    assert config.strangers(Example, {**environ, "PLIMSOLL_CONTEXT": "x"}) == [
        "PLIMSOLL_CONTEXT is no setting of this process",
        "PLIMSOLL_HTTP_PROT is no setting of this process: did you mean PLIMSOLL_HTTP_PORT?",
    ]


JWT = {
    **GOOD,
    "PLIMSOLL_AUTH": "jwt",
    "PLIMSOLL_AUTH_ISSUER": "https://id.example",
    "PLIMSOLL_AUTH_AUDIENCE": "plimsoll",
    "PLIMSOLL_AUTH_JWKS": "/keys.json",
}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_without_authentication_only_this_machine_is_served(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    given(monkeypatch, **GOOD, PLIMSOLL_HTTP_HOST=host)
    assert config.load(Example).auth == "off"


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "10.0.0.1", "quota.example", "localhost.example", "127.0.0.1.example"],  # noqa: S104
)
def test_without_authentication_nobody_else_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    given(monkeypatch, **GOOD, PLIMSOLL_HTTP_HOST=host)
    with pytest.raises(SystemExit):
        config.load(Example)
    assert f"PLIMSOLL_AUTH: off is for loopback only, and PLIMSOLL_HTTP_HOST is {host}" in capsys.readouterr().err
    given(monkeypatch, **JWT)
    assert config.load(Example).http_host == host


def test_authentication_is_on_unless_said_and_names_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, **JWT)
    monkeypatch.delenv("PLIMSOLL_AUTH")
    monkeypatch.delenv("PLIMSOLL_AUTH_ISSUER")
    monkeypatch.delenv("PLIMSOLL_AUTH_JWKS")
    with pytest.raises(SystemExit):
        config.load(Example)
    assert "PLIMSOLL_AUTH: jwt needs PLIMSOLL_AUTH_ISSUER, PLIMSOLL_AUTH_JWKS; on" in capsys.readouterr().err


def test_keys_come_over_tls_or_from_this_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for address in ("https://id.example/jwks", "http://127.0.0.1:8081/jwks", "/etc/keys.json"):
        given(monkeypatch, **{**JWT, "PLIMSOLL_AUTH_JWKS": address})
        assert config.load(Example).auth_jwks == address
    given(monkeypatch, PLIMSOLL_AUTH_JWKS="http://id.example/jwks")
    with pytest.raises(SystemExit):
        config.load(Example)
    assert "PLIMSOLL_AUTH_JWKS: whoever can change" in capsys.readouterr().err
