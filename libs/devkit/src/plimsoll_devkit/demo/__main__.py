"""The demo from the command line: a stack of its own, the story on it, and the table of what was expected and seen."""

import asyncio
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from plimsoll_devkit.demo import alarm, changes, chapters, crash
from plimsoll_devkit.demo.story import Story
from plimsoll_devkit.demo.world import connected
from plimsoll_devkit.stack import assembly, containers, external, table
from plimsoll_devkit.stack.context import LOCAL, reachable
from plimsoll_devkit.stack.parts import PartMissingError
from plimsoll_devkit.stack.private import PrivateStack
from plimsoll_devkit.stack.process import start_time
from plimsoll_devkit.stack.steps import Steps
from plimsoll_devkit.stack.supervisor import PartFailedError

FOLDER = LOCAL / "demo"
BRING_PROMETHEUS = "sudo apt-get install --yes --no-install-recommends prometheus"
_INTERRUPTED = 130


def main() -> int:
    """Run the demo; 0 where everything seen was expected."""
    # Ended from outside is the same as Ctrl-C: what was started is stopped.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        return _run(Story(sys.stdout))
    except (PartMissingError, PartFailedError) as failure:
        print(f"\n{failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted: everything that was started is stopped", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read it has gone (`| head`); what is still buffered must not raise again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(story: Story) -> int:
    """Tell the story on a stack of its own; 0 where everything seen was expected."""
    story.line("Plimsoll's main job on real parts: nothing below is simulated, every figure is read from the system.\n")
    with ExitStack() as cleanup:
        stack, names = _start(cleanup)
        asyncio.run(_tell(stack, story, names))
        story.line(f"\n{story.elapsed:5.1f} s  What was expected, and what was seen\n")
        story.line(story.table())
        story.line()
    story.line(f"{story.elapsed:5.1f} s  everything that was started is stopped, its data is gone")
    if story.failed:
        story.line("what was seen DIFFERS from what was expected")
        return 1
    story.line("all as expected. Next: make up, and the tour in README.md")
    return 0


def _start(cleanup: ExitStack) -> tuple[PrivateStack, Sequence[str]]:
    """Bring up a stack of the demo's own; returns it with the names of its parts."""
    steps = Steps(sys.stdout)
    names = tuple(service.name for service in table.SERVICES)
    missing = [name for name in assembly.INFRASTRUCTURE if not external.endpoint(name)]
    if missing and containers.engine_answers():
        with steps.step(f"{', '.join(missing)} as containers"):
            os.environ |= {
                external.NAMED[name]: where
                for name, where in cleanup.enter_context(containers.running(missing)).items()
            }
    names = assembly.set_up(steps, names)
    _forget_the_dead()
    with steps.step("parts") as note:
        starting = True

        def changed(parts: Mapping[str, Mapping[str, object]]) -> None:
            waited_for = [name for name, one in parts.items() if one["phase"] not in ("ready", "done")]
            if starting and waited_for:
                note(f"waiting for {', '.join(waited_for)}")

        stack = PrivateStack(
            names, restart=True, alerts_faster=alarm.FASTER, folder=FOLDER / str(os.getpid()), on_change=changed
        )
        cleanup.enter_context(stack)
        starting = False
    for name in names:
        if table.BY_NAME[name].port:
            steps.say(f"           {name:<16}{stack.address(name)}")
    return stack, names


def _forget_the_dead() -> None:
    """Remove what a demo left behind that was killed before it could clean up."""
    for folder in FOLDER.glob("[0-9]*"):
        if start_time(int(folder.name)) is None:
            shutil.rmtree(reachable(folder / "postgres"), ignore_errors=True)
            shutil.rmtree(folder, ignore_errors=True)


async def _tell(stack: PrivateStack, story: Story, names: Sequence[str]) -> None:
    prometheus = f"http://{stack.address('prometheus')}" if "prometheus" in names else None
    context_file = stack.write_context()
    # Parts that outlive the demo know the tenants of earlier runs.
    lasting = any(external.endpoint(name) for name in assembly.INFRASTRUCTURE)
    suffix = f"-{secrets.token_hex(2)}" if lasting else ""
    async with connected(stack, story, context_file, suffix) as world:
        for chapter in (chapters.entitlements, chapters.limits, chapters.allow, chapters.deny, chapters.race):
            await chapter(world)
        for chapter in (changes.install, changes.capacity, changes.ask_for_more):
            await chapter(world)
        await crash.crash(world)
        await alarm.fail_open(world)
        if prometheus:
            await alarm.alert(world, prometheus)
            return
        story.say(f"The alert itself is skipped: there is no Prometheus here. Bring it with: {BRING_PROMETHEUS}")
        story.skip(f"{alarm.ALERT} fires and clears", "yes", "no Prometheus here")


if __name__ == "__main__":
    sys.exit(main())
