"""Which golden bytes are there: one file per message type, or several with a word behind the type."""

import json
from pathlib import Path

from pydantic import BaseModel

from plimsoll_contracts.envelope import Headers
from plimsoll_contracts.export import messages_of
from plimsoll_contracts.topics import CATALOGUE

HERE = Path(__file__).parent
MODELS: dict[str, type[BaseModel]] = dict(messages_of(CATALOGUE))


COMPACT = {"quota.request.v1", "quota.reply.v1", "quota.decision.v1"}
"""What is written often, and so without the fields that stand at their default."""


def bodies(folder: str) -> list[Path]:
    return sorted(path for path in (HERE / folder).glob("*.json") if not path.name.endswith(".headers.json"))


def kind_of(path: Path) -> str:
    """Return the ``ce_type`` in a file's name: the name itself, or the name less its last word."""
    return path.stem if path.stem in MODELS else path.stem.rpartition(".")[0]


def written(kind: str, message: BaseModel) -> bytes:
    """Return the bytes that are written for a message of a type."""
    return message.model_dump_json(exclude_defaults=kind in COMPACT).encode()


def headers_of(kind: str) -> Headers:
    pairs = json.loads((HERE / "golden" / f"{kind}.headers.json").read_text(encoding="utf-8"))
    return [(name, value.encode()) for name, value in pairs]


GOLDEN = bodies("golden")
ACCEPTED = bodies("accepted")
EVERY_BODY = GOLDEN + ACCEPTED


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def rewrite() -> None:
    """Write the golden files as the models write them now.

    Bytes that a release has written must stay readable: copy the old file to ``accepted/`` first.
    """
    for path in GOLDEN:
        kind = kind_of(path)
        path.write_bytes(written(kind, MODELS[kind].model_validate_json(path.read_bytes())))


if __name__ == "__main__":
    rewrite()
