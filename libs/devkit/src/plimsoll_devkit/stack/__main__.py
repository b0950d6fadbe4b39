"""The local stack from the command line: `python -m plimsoll_devkit.stack up`."""

import argparse
import asyncio
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from plimsoll_devkit.stack import assembly, compose, daemon, engine, table
from plimsoll_devkit.stack.context import LOCAL, Layout, locked, reachable, read_json, write_json
from plimsoll_devkit.stack.parts import PartMissingError
from plimsoll_devkit.stack.process import tail
from plimsoll_devkit.stack.steps import Steps

_ALL = tuple(service.name for service in table.SERVICES)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    asked = _parser().parse_args(arguments)
    try:
        return _COMMANDS[asked.command](Layout(asked.data.absolute()), asked)
    except PartMissingError as missing:
        print(missing, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read it has gone (`make logs | head`); what is still buffered must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m plimsoll_devkit.stack", description=__doc__)
    folder = Path(os.environ.get("PLIMSOLL_STACK_DATA") or LOCAL / "stack")
    parser.add_argument("--data", type=Path, default=folder, help="the folder of this stack ($PLIMSOLL_STACK_DATA)")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("set-up", help="download what is missing")
    for name, what in (("up", "start and leave running"), ("supervise", "start and stay"), ("logs", "show output")):
        command = commands.add_parser(name, help=what)
        command.add_argument("--only", type=_names, default=_ALL, help="names of parts, comma-separated")
        if name == "logs":
            command.add_argument("--follow", action="store_true")
            command.add_argument("--lines", type=int, default=20)
    for name, what in (("down", "stop"), ("status", "what runs"), ("reset", "stop, and throw the data away")):
        commands.add_parser(name, help=what)
    commands.add_parser("compose", help="print compose.yaml, made from the table")
    return parser


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name for name in text.split(",") if name)
    if unknown := sorted(set(names) - set(_ALL)):
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(unknown)}; there are {', '.join(_ALL)}")
    # In the table's order, whatever order they were named in.
    return tuple(name for name in _ALL if name in names)


def _set_up(_layout: Layout, _asked: argparse.Namespace) -> int:
    assembly.set_up(Steps())
    return 0


def _supervise(layout: Layout, asked: argparse.Namespace) -> int:
    return asyncio.run(daemon.supervise(layout, asked.only))


def _up(layout: Layout, asked: argparse.Namespace) -> int:
    steps = Steps()
    if engine.chosen(layout):
        if code := engine.up(layout, asked.only):
            return code
        write_json(layout.context_file, daemon.context(layout, asked.only))
    elif code := _start(layout, asked, steps):
        return code
    print()
    for name, address in read_json(layout.context_file).items():
        print(f"  {name:<13}{address}")
    print(
        "\nnext: .venv/bin/plimsoll quota set acme/env:prod cpu=4\n"
        "      .venv/bin/plimsoll quota status acme/env:prod\n"
        "      make status | logs | down"
    )
    return 0


def _start(layout: Layout, asked: argparse.Namespace, steps: Steps) -> int:
    # One at a time: two supervisors on one folder would take each other's ports and files, and hide one another.
    with locked(layout.data.with_suffix(".lock")):
        if daemon.running(layout) is not None:
            return 0
        process = daemon.launch(layout, assembly.set_up(steps, asked.only))
        try:
            failure = daemon.wait_until_ready(layout, process, steps)
        except KeyboardInterrupt:
            daemon.abandon(layout, process)
            print("\ninterrupted: what was started is stopped; its data stays", file=sys.stderr)
            raise
    if failure:
        print(f"\n{failure}", file=sys.stderr)
        return 1
    steps.say(f"  {steps.elapsed:5.1f} s  all ready")
    return 0


def _down(layout: Layout, _asked: argparse.Namespace) -> int:
    if engine.chosen(layout):
        return engine.down(layout)
    print("stopped; its data stays" if daemon.end(layout) else "nothing is running")
    return 0


def _status(layout: Layout, _asked: argparse.Namespace) -> int:
    if engine.chosen(layout):
        return engine.compose(layout, "ps")
    if daemon.running(layout) is None:
        print("nothing is running; start it with: make up")
        return 1
    parts = read_json(layout.state_file).get("parts")
    ports = read_json(layout.ports_file)
    good = True
    print(f"{'part':<16}{'state':<12}{'pid':>8}  {'address':<18}{'restarts':>8}  what it is for")
    for name, one in (parts if isinstance(parts, dict) else {}).items():
        address = f"127.0.0.1:{ports[name]}" if name in ports else ""
        good = good and one["phase"] in ("ready", "done")
        what = table.BY_NAME[name].purpose
        print(f"{name:<16}{one['phase']:<12}{one['pid'] or '':>8}  {address:<18}{one['restarts']:>8}  {what}")
    return 0 if good else 1


def _logs(layout: Layout, asked: argparse.Namespace) -> int:
    if engine.chosen(layout):
        return engine.compose(
            layout, "logs", f"--tail={asked.lines}", *(["--follow"] if asked.follow else []), *asked.only
        )
    files = {name: layout.logs / f"{name}.log" for name in (*asked.only, "supervisor")}
    files = {name: file for name, file in files.items() if file.exists()}
    ends = {name: file.stat().st_size for name, file in files.items()}
    for name, file in files.items():
        _prefixed(name, tail(file, asked.lines))
    while asked.follow:
        for name, file in files.items():
            size = file.stat().st_size
            if size > ends[name]:
                with file.open(errors="replace") as handle:
                    handle.seek(ends[name])
                    _prefixed(name, handle.read().rstrip("\n"))
            ends[name] = size
        time.sleep(0.3)
    return 0


def _prefixed(name: str, text: str) -> None:
    for line in text.splitlines():
        print(f"{name:<15}| {line}", flush=True)


def _reset(layout: Layout, _asked: argparse.Namespace) -> int:
    if engine.chosen(layout):
        engine.down(layout, volumes=True)
    daemon.end(layout)
    for folder in (layout.data, reachable(layout.data / "postgres")):
        shutil.rmtree(folder, ignore_errors=True)
    print("its data is gone; downloads stay")
    return 0


def _compose(_layout: Layout, _asked: argparse.Namespace) -> int:
    print(compose.render(), end="")
    return 0


_COMMANDS: Mapping[str, Callable[[Layout, argparse.Namespace], int]] = {
    "set-up": _set_up,
    "up": _up,
    "supervise": _supervise,
    "down": _down,
    "status": _status,
    "logs": _logs,
    "reset": _reset,
    "compose": _compose,
}


if __name__ == "__main__":
    sys.exit(main())
