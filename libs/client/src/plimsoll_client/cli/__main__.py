"""Where does ``plimsoll`` start: options for every command, errors in one form, exit codes."""

import inspect
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

try:
    from cyclopts import App, CycloptsError, Parameter

    import plimsoll_client.cli.check
    import plimsoll_client.cli.limits
    import plimsoll_client.cli.simulating  # noqa: F401 - as above
    from plimsoll_client.cli import completion, screen
    from plimsoll_client.cli.commands import context, quota
    from plimsoll_client.cli.dead_letters import dlq
    from plimsoll_client.cli.decisions import decisions
    from plimsoll_client.cli.doctor import doctor
    from plimsoll_client.cli.failures import EXIT_HELP, CommandFailed, Exit
    from plimsoll_client.cli.figures import clean
    from plimsoll_client.cli.limit_requests import limits
    from plimsoll_client.cli.past import gates
    from plimsoll_client.cli.session import PLAIN_FLAGS, Output, Session
    from plimsoll_client.cli.tokens import token
except ModuleNotFoundError as missing:  # pragma: no cover  needs an installation without the extra
    sys.exit(f"plimsoll needs {missing.name}: install plimsoll-client[cli]")

_WATCH_MIN, _WATCH_MAX = 0.2, 3600

app = App(
    name="plimsoll",
    help="Set limits, see usage, and find out why something was refused.",
    help_epilogue=EXIT_HELP,
    version=lambda: f"plimsoll {version('plimsoll-client')}",
    default_parameter=PLAIN_FLAGS,
)
app.command(quota)
app.command(limits)
app.command(decisions)
app.command(gates)
app.command(dlq)
app.command(doctor)
app.command(context)
app.command(token)


@app.command(name="completion")
def show_completion(shell: completion.Shell, /) -> None:
    """Print what a shell reads to complete this command: `source <(plimsoll completion bash)`.

    Args:
        shell: Which one; bash also completes scopes and dimensions.
    """
    print(completion.script(app, shell))


@app.command(name="--install-completion")
def install_completion(*, shell: completion.Shell | None = None) -> None:
    """Have your shell complete this command from its next start on.

    Args:
        shell: Which one; the one that this runs in where it is not given.
    """
    print(f"completion is in {completion.install(app, shell)}")


@app.meta.default
def launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    output: Annotated[Output, Parameter(name=("--output", "-o"))] = Output.TABLE,
    url: str | None = None,
    token_file: Path | None = None,
    watch: float | None = None,
) -> Exit:
    """Run a command.

    Args:
        tokens: The command.
        output: How data is written to stdout; amounts in JSON and CSV are integers in base units.
        url: The service's address; where it is not given, the one in $PLIMSOLL_CONTEXT, in .local/context.json
            here or above, or in ~/.config/plimsoll/context.json.
        token_file: A file with the bearer token to send; where it is not given, $PLIMSOLL_TOKEN, and for the
            service of the context file the token that is named there.
        watch: Show it again every so many seconds (2 where no number follows), until Ctrl-C; a terminal is redrawn,
            anything else gets block after block, in JSON one a line.
    """
    command, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
    session = Session(output, url, token_file)
    if "session" in bound.signature.parameters:
        bound.arguments["session"] = session
    if watch is not None:
        return _watch(command, bound, session, watch)
    result = command(*bound.args, **bound.kwargs)
    return result if isinstance(result, Exit) else Exit.OK


def _watch(command: Callable[..., Exit], bound: inspect.BoundArguments, session: Session, seconds: float) -> Exit:
    if not getattr(command, "is_watchable", False):
        raise CommandFailed(Exit.USAGE, "--watch goes with commands that only show something", "leave it out")
    if not _WATCH_MIN <= seconds <= _WATCH_MAX:
        raise CommandFailed(Exit.USAGE, f"--watch {seconds:g}", f"write seconds from {_WATCH_MIN} to {_WATCH_MAX}")

    def once(frame: io.StringIO | None) -> Exit:
        session.once_more(frame)
        return command(*bound.args, **bound.kwargs)

    return screen.watch(once, seconds, lambda: datetime.now(UTC))


def _with_seconds(arguments: Sequence[str]) -> list[str]:
    """Write a bare ``--watch`` out."""
    given = list(arguments)
    for place, word in enumerate(given):
        if word == "--watch" and not re.fullmatch(r"[0-9.]+", "".join(given[place + 1 : place + 2])):
            given[place] = "--watch=2"
    return given


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code; every error is told on stderr with what to try next."""
    if arguments[:1] == [completion.WORDS]:
        print("\n".join(completion.words(app, " ".join(arguments[1:]), Session())))
        return int(Exit.OK)
    try:
        code = app.meta(_with_seconds(arguments), exit_on_error=False, print_error=False, result_action="return_value")
        return int(code or Exit.OK)  # help and version return nothing
    except CycloptsError as error:
        named = " ".join(("plimsoll", *(error.command_chain or ()), "--help"))
        failure = CommandFailed(Exit.USAGE, clean(str(error).strip()), f"see `{named}`")
    except CommandFailed as error:
        failure = error
    except KeyboardInterrupt:
        return 130
    session = Session()
    session.say(f"error: {failure.message}", "red")
    if failure.hint:
        session.say(f"  try: {failure.hint}")
    return int(failure.code)


def reference() -> str:
    """Render every command as the Markdown of ``docs/reference/cli.md``."""
    # cyclopts writes how the present program was started into each usage: `python -m ...` leaves its tail there.
    commands = re.sub(
        r"^(plimsoll\b.*?) -m \S+", r"\1", app.generate_docs(output_format="markdown"), flags=re.MULTILINE
    )
    return f"{commands.rstrip()}\n\n## Exit codes\n\n{EXIT_HELP}\n"


def main() -> None:
    """Run as a program."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read it has gone; what is still buffered must not raise again when Python ends.
        _discard_stdout()
        code = int(Exit.ERROR)
    except OSError as error:  # a full disk
        _discard_stdout()
        Session().say(f"error: the output could not be written: {error.strerror or error}", "red")
        code = int(Exit.ERROR)
    sys.exit(code)


def _discard_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
