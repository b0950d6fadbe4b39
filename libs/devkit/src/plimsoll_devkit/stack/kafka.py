"""How does one KRaft node of Apache Kafka run here from its published jars?"""

import asyncio
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from plimsoll_devkit.stack import health, parts, table
from plimsoll_devkit.stack.context import ROOT, Layout, allocate_ports, locked
from plimsoll_devkit.stack.parts import Java, PartMissingError
from plimsoll_devkit.stack.process import Launch, spawn, stop, tail
from plimsoll_devkit.stack.steps import Steps

_HOME = ROOT / "deploy" / "local" / "kafka"
_JVM = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
    "-Xlog:cds=off",
    "-Xlog:cds+dynamic=off",
)
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/java/cacerts")
_MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Kafka:
    """The broker as a part of a stack. `archive` holds its loaded classes, so that it starts in about a second."""

    layout: Layout
    values: Mapping[str, str]
    java: Java
    jars: tuple[Path, ...]
    archive: Path | None
    name: str = "kafka"
    after: tuple[str, ...] = ()
    once: bool = False
    seconds: float = 60.0

    @property
    def settings(self) -> dict[str, str]:
        """The environment of the table, placeholders filled in."""
        return table.environment(table.BY_NAME["kafka"], {**self.values, "data": str(self.data)})

    @property
    def data(self) -> Path:
        """Where the log segments are."""
        return self.layout.data / "kafka" / "data"

    async def prepare(self) -> None:
        """Write the broker's properties; format its data folder the first time."""
        file = self.layout.data / "kafka" / "server.properties"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(properties(self.settings))
        if (self.data / "meta.properties").exists():
            return
        cluster = self.settings["CLUSTER_ID"]
        argv = self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(file))
        log = self.layout.logs / "kafka.log"
        if code := await (await spawn(Launch(argv), log)).wait():
            raise RuntimeError(f"formatting Kafka's data folder failed with code {code}:\n{tail(log)}")

    def launch(self) -> Launch:
        """The command of the broker."""
        return Launch(self._java("kafka.Kafka", str(self.layout.data / "kafka" / "server.properties")))

    async def healthy(self) -> bool:
        """Whether metadata is answered and a group coordinator is found."""
        return await health.kafka(self.settings["KAFKA_ADVERTISED_LISTENERS"].split(",")[0].partition("://")[2])

    async def ready(self) -> None:
        """Nothing more to do."""

    def _java(self, main: str, *arguments: str) -> tuple[str, ...]:
        archive = (f"-XX:SharedArchiveFile={self.archive}",) if self.archive else ()
        return (*_java_command(self.java, self.jars, self.settings["KAFKA_HEAP_OPTS"], archive), main, *arguments)


def properties(environment: Mapping[str, str]) -> str:
    """The broker's properties file: what the image's entry point makes of `KAFKA_*` variables."""
    lines = [
        f"{name.removeprefix('KAFKA_').lower().replace('_', '.')}={value}"
        for name, value in environment.items()
        if name.startswith("KAFKA_") and name != "KAFKA_HEAP_OPTS"
    ]
    return "\n".join(lines) + "\n"


def _java_command(java: Java, jars: tuple[Path, ...], heap: str, more: tuple[str, ...]) -> tuple[str, ...]:
    log4j = f"-Dlog4j2.configurationFile={_HOME / 'log4j2.properties'}"
    # The class archive is valid for this very class path only: sorted, always the same.
    return (str(java.path), *heap.split(), *_JVM, log4j, *more, "-cp", ":".join(map(str, jars)))


def fetch_jars(shared: Path, java: Java, steps: Steps) -> tuple[Path, ...]:
    """Kafka's jars, through Maven the first time, each checked against the list in the repository.

    Raises:
        PartMissingError: Maven is needed and cannot be had, or it failed.
        RuntimeError: a jar is not the one we know.
    """
    lines = (_HOME / "sha512sums.txt").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split() for line in lines)}
    libs, done = shared / "kafka" / "libs", shared / "kafka" / "verified"
    wanted = hashlib.sha256((_HOME / "sha512sums.txt").read_bytes()).hexdigest()
    with locked(shared / "kafka.lock"):
        if not done.exists() or done.read_text() != wanted:
            if not _matches(libs, listed):
                _run_maven(parts.maven(steps), java, libs, len(listed), steps)
            with steps.step("checksums of Kafka's jars") as note:
                if not _matches(libs, listed):
                    raise RuntimeError(f"the jars in {libs} are not those of {_HOME / 'sha512sums.txt'}")
                note(f"{len(listed)} match")
            done.write_text(wanted)
    return tuple(sorted(libs / name for name in listed))


def _matches(libs: Path, listed: Mapping[str, str]) -> bool:
    if {jar.name for jar in libs.glob("*.jar")} != set(listed):
        return False
    return all(hashlib.sha512((libs / name).read_bytes()).hexdigest() == digest for name, digest in listed.items())


def _run_maven(maven: Path, java: Java, libs: Path, count: int, steps: Steps) -> None:
    shutil.rmtree(libs, ignore_errors=True)
    argv = [str(maven), "-B", "-f", str(_HOME / "pom.xml"), _COPY, f"-Dkafka.libs={libs}"]
    environment = {**os.environ, "JAVA_HOME": str(java.path.resolve().parents[1])}
    if _SYSTEM_CERTIFICATES.exists():
        # A Java from a wheel trusts its own list only, not what this machine's administrator added.
        trust = f"-Djavax.net.ssl.trustStore={_SYSTEM_CERTIFICATES}"
        environment["MAVEN_OPTS"] = f"{environment.get('MAVEN_OPTS', '')} {trust}".strip()
    fetched, size, kept = 0, 0.0, list[str]()
    with steps.step(f"Kafka's {count} jars (Maven)") as note:
        with subprocess.Popen(  # noqa: S603
            argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            for line in process.stdout or ():
                kept = [*kept[-30:], line]
                if match := re.search(r"Downloaded .*\.jar \(([\d.]+) (k|M)B", line):
                    fetched += 1
                    size += float(match.group(1)) / (1000 if match.group(2) == "k" else 1)
                    note(f"{fetched} fetched, {size:.1f} MB")
        if process.returncode != 0:
            raise PartMissingError("Apache Kafka", "the topics", " ".join(argv), "".join(kept).rstrip())
        note(f"{sum(jar.stat().st_size for jar in libs.glob('*.jar')) / _MEGABYTE:.0f} MB")


def class_archive(shared: Path, java: Java, jars: tuple[Path, ...], steps: Steps) -> Path | None:
    """An archive of the classes a broker loads, made once by a training run; None where this Java cannot."""
    identity = "\n".join([str(java.path), java.version, *map(str, jars), *_JVM, "2"])
    archive = shared / "kafka" / f"classes-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.jsa"
    refused = archive.with_suffix(".refused")
    with locked(shared / "kafka.lock"):
        if not archive.exists() and not refused.exists():
            with steps.step("class archive for a quick broker start") as note:
                asyncio.run(_train(java, jars, archive))
                if not archive.exists():
                    refused.touch()
                    note("this Java makes none; the broker starts in three seconds instead")
    return archive if archive.exists() else None


async def _train(java: Java, jars: tuple[Path, ...], archive: Path) -> None:
    """Run one broker to readiness and end it cleanly: only then is the archive written."""
    dump = [str(java.path), "-Xshare:dump"]
    # A stripped Java (the wheel's) lacks the base archive that ours extends; with it there this changes nothing.
    if not list(java.path.resolve().parents[1].glob("lib/server/classes*.jsa")):
        await (await asyncio.create_subprocess_exec(*dump, stdout=subprocess.DEVNULL)).wait()
    with tempfile.TemporaryDirectory(prefix="plimsoll-train-") as folder:
        layout = Layout(Path(folder))
        part = Kafka(layout, addresses(layout), java, jars, None)
        await part.prepare()
        plain = part.launch()
        made = archive.with_suffix(".draft")
        split = plain.argv.index("-cp")
        launch = Launch((*plain.argv[:split], f"-XX:ArchiveClassesAtExit={made}", *plain.argv[split:]), grace=60.0)
        process = await spawn(launch, layout.logs / "kafka.log")
        try:
            await health.wait(part.healthy, part.seconds, lambda: process.returncode is None)
        finally:
            await stop(process, launch)
        if made.exists():
            made.rename(archive)


def addresses(layout: Layout) -> dict[str, str]:
    """The values of Kafka's placeholders for a stack on this machine."""
    ports = allocate_ports(("kafka", "kafka-internal", "kafka-controller"), layout.ports_file)
    return {
        "bind": "127.0.0.1",
        "port": str(ports["kafka"]),
        "published_port": str(ports["kafka"]),
        "internal_port": str(ports["kafka-internal"]),
        "controller_port": str(ports["kafka-controller"]),
        "kafka": f"127.0.0.1:{ports['kafka-internal']}",
    }
