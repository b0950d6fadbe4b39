"""What does ``plimsoll dlq`` do: find, look at and replay records that were set aside."""

from cyclopts import App
from rich.text import Text

from plimsoll_client.cli import render
from plimsoll_client.cli.failures import CommandFailed, Exit
from plimsoll_client.cli.figures import clean
from plimsoll_client.cli.session import PLAIN_FLAGS, In, watchable

dlq = App(
    name="dlq",
    help="Records that were set aside because nobody could handle them (dead letters).",
    default_parameter=PLAIN_FLAGS,
)


@dlq.command(name="list")
@watchable
def list_letters(*, all: bool = False, session: In) -> Exit:  # noqa: A002  the option's name
    """List records that were set aside and wait for somebody.

    Args:
        all: Those that were replayed too.
        session: This run of the command.
    """
    found = list(session.api.dead_letters(replayed=all))
    rows = (letter.model_dump(mode="json", exclude={"value_base64"}) for letter in found)
    session.show({"dead_letters": found}, lambda: render.dead_letters(found, session.now), rows)
    if not found:
        session.say("no dead letters wait")
    return Exit.OK


@dlq.command
@watchable
def show(letter: int, /, *, session: In) -> Exit:
    """Show one record that was set aside, with its value.

    Args:
        letter: Its id.
        session: This run of the command.
    """
    found = session.api.dead_letter(letter)
    session.show(found, lambda: render.dead_letter(found, session.now), [found.model_dump(mode="json")])
    return Exit.OK


@dlq.command
def replay(*letters: int, dry_run: bool = False, session: In) -> Exit:
    """Publish records to their topics again, byte for byte; repeats are recognised, so this is safe.

    Args:
        letters: Their ids.
        dry_run: Only say what would be published.
        session: This run of the command.
    """
    if not letters:
        raise CommandFailed(Exit.USAGE, "nothing to replay", "name ids; `plimsoll dlq list` shows them")
    done = [session.api.replay(letter, dry_run=dry_run) for letter in letters]
    word = "would replay" if dry_run else "replayed"
    lines = [f"{word} {each.id} to {clean(each.topic)} ({each.size} bytes)" for each in done]
    rows = (each.model_dump(mode="json", exclude={"value_base64"}) for each in done)
    session.show({"replayed": done, "dry_run": dry_run}, lambda: Text("\n".join(lines)), rows)
    return Exit.OK
