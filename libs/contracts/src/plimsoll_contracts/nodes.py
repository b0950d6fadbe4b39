"""What do node agents tell: which nodes there are, what they can take, and what runs there."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from plimsoll_contracts.fields import Bytes, Event, Flag, Instant, Millicores, Name, Version
from plimsoll_contracts.requests import MAX_LABELS, LabelValue


class NodeCapacity(Event):
    """What a node can take in all."""

    cpu: Millicores
    memory: Bytes


class NodeReport(Event):
    """One node as it is, whole, under a version that its agent raises; a later version replaces the whole."""

    node: Name
    version: Version
    pool: Name
    labels: Annotated[Mapping[Name, LabelValue], Field(max_length=MAX_LABELS)] = Field(default_factory=dict)
    capacity: NodeCapacity | None = None
    """None: the node never told, and is no gate."""
    schedulable: Flag = True
    """False: what runs there stays, nothing new is placed there."""
    reported_at: Instant | None = None
    """By the agent's clock: shown, never compared."""
