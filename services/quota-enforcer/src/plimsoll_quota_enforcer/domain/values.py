"""How is a value declared: frozen to the type checker, which refuses to change it; plain and cheap to make at runtime.

A frozen dataclass sets each field by a call: one of 14 fields takes nine times as long to make, and a request makes
some twenty of them.
"""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """Make a class of plain values, equal by their fields."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
