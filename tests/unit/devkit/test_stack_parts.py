import hashlib
import io
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from plimsoll_devkit.stack import context, daemon, external, kafka, parts
from plimsoll_devkit.stack.context import Layout, allocate_ports, read_json, write_json
from plimsoll_devkit.stack.parts import PartMissingError
from plimsoll_devkit.stack.process import descendants, start_time
from plimsoll_devkit.stack.steps import Steps


def test_ports_are_written_down_and_used_again(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    first = allocate_ports(("a", "b"), file)
    assert first["a"] != first["b"]
    assert allocate_ports(("a", "b", "c"), file) == {**first, "c": read_json(file)["c"]}


def test_a_port_that_was_taken_meanwhile_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    before = allocate_ports(("a", "b"), file)
    with socket.socket() as other:
        other.bind(("127.0.0.1", before["a"]))
        other.listen()
        after = allocate_ports(("a", "b"), file)
    assert after["a"] != before["a"]
    assert after["b"] == before["b"]


def test_a_pid_that_went_to_another_process_is_not_taken_for_ours(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert daemon.running(layout) is None
    write_json(layout.pid_file, {"pid": os.getpid(), "started": start_time(os.getpid())})
    assert daemon.running(layout) == os.getpid()
    write_json(layout.pid_file, {"pid": os.getpid(), "started": 1})
    assert daemon.running(layout) is None


def test_a_zombie_counts_as_ended() -> None:
    child = subprocess.Popen(["true"])
    deadline = time.monotonic() + 5
    while start_time(child.pid) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert start_time(child.pid) is None
    child.wait()


def test_descendants_are_found_over_generations() -> None:
    script = "import subprocess, sys; subprocess.run(['sleep', '30'])"
    child = subprocess.Popen([sys.executable, "-c", script])
    try:
        deadline = time.monotonic() + 5
        while not descendants(child.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        grandchildren = descendants(child.pid)
        assert len(grandchildren) == 1
        assert set(descendants(os.getpid())) >= {child.pid, *grandchildren}
    finally:
        for pid in [*descendants(child.pid), child.pid]:
            os.kill(pid, 9)
        child.wait()


def test_a_missing_part_is_named_with_its_reason_and_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(PartMissingError) as missing:
        parts.maven(Steps(io.StringIO()))
    assert str(missing.value).splitlines() == [
        "mvn is missing.",
        "  needed for: fetching Apache Kafka's published jars",
        "  bring it with: sudo apt-get install --yes --no-install-recommends maven",
    ]


def test_java_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, version in (("old", "11.0.2"), ("new", "21.0.1")):
        (tmp_path / folder / "bin").mkdir(parents=True)
        fake = tmp_path / folder / "bin" / "java"
        fake.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
        fake.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'new' / 'bin'}:{os.environ['PATH']}")
    assert parts.java(Steps(io.StringIO())) == parts.Java(tmp_path / "new" / "bin" / "java", "21.0.1")


def test_a_jar_with_another_checksum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = {"good.jar": b"good", "bad.jar": b"bad"}
    listed = "".join(f"{hashlib.sha512(content).hexdigest()}  {name}\n" for name, content in jars.items())
    (tmp_path / "sha512sums.txt").write_text(listed)
    libs = tmp_path / "kafka" / "libs"

    def fetch(*_: object) -> None:
        libs.mkdir(parents=True, exist_ok=True)
        for name, content in jars.items():
            (libs / name).write_bytes(content)

    monkeypatch.setattr(kafka, "_HOME", tmp_path)
    monkeypatch.setattr(kafka, "_run_maven", fetch)
    monkeypatch.setattr(parts, "maven", lambda _steps: Path("/mvn"))
    runtime, steps = parts.Java(Path("/java"), "17"), Steps(io.StringIO())
    jars["bad.jar"] = b"forged"
    with pytest.raises(RuntimeError, match="are not those of"):
        kafka.fetch_jars(tmp_path, runtime, steps)
    jars["bad.jar"] = b"bad"
    assert kafka.fetch_jars(tmp_path, runtime, steps) == (libs / "bad.jar", libs / "good.jar")


def test_a_step_says_how_long_it_took_and_that_it_failed() -> None:
    out = io.StringIO()
    with Steps(out).step("good") as note:
        note("3 of 3")
    with pytest.raises(ValueError, match="x"), Steps(out).step("bad"):
        raise ValueError("x")
    good, bad = out.getvalue().splitlines()
    assert good == "    0.0 s  good  3 of 3"
    assert bad == "    0.0 s  bad  FAILED"


def test_a_part_named_by_a_variable_is_used_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIMSOLL_USE_POSTGRES", "postgresql://admin:secret@db.example:6543/postgres")
    monkeypatch.setenv("PLIMSOLL_USE_KAFKA", "broker.example:9092")
    assert external.address("postgres") == "db.example:6543"
    assert external.address("kafka") == "broker.example:9092"
    assert external.address("valkey") is None


def test_only_root_needs_a_folder_that_others_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert context.reachable(private / "data") == private / "data"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert context.reachable(private / "data").parent == Path("/var/tmp")  # noqa: S108


def test_ports_are_not_those_of_outgoing_connections(tmp_path: Path) -> None:
    """A client retrying a stopped server on such a port may connect to itself, and then the server cannot start."""
    lowest, highest = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = allocate_ports(tuple(map(str, range(50))), tmp_path / "ports.json").values()
    assert len(set(ports)) == 50
    assert not any(lowest <= port <= highest for port in ports)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_a_stand_in_that_somebody_else_put_there_is_refused(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    stand_in = context.reachable(private / "data")
    assert not stand_in.exists(), "asking makes nothing"
    stand_in.mkdir()
    try:
        os.chown(stand_in, 65534, 65534)
        with pytest.raises(PermissionError, match="belongs to somebody else"):
            context.reachable(private / "data")
    finally:
        stand_in.rmdir()


def test_key_and_token_are_their_owners_alone_and_the_key_stays(tmp_path: Path) -> None:
    credentials = Layout(tmp_path / "stack").credentials
    credentials.make()
    key, token, known = credentials.key_file.read_bytes(), credentials.token_file.read_text(), credentials.jwks_file
    modes = [path.stat().st_mode & 0o777 for path in (credentials.folder, credentials.key_file, credentials.token_file)]
    assert modes == [0o700, 0o600, 0o600]
    assert "PRIVATE" not in known.read_text()
    assert '"d"' not in known.read_text()
    first = known.read_text()
    credentials.make()
    assert (credentials.key_file.read_bytes(), known.read_text()) == (key, first)
    assert credentials.token_file.read_text().count(".") == token.count(".") == 2
