"""What may a token let its bearer do over HTTP?"""

from enum import StrEnum
from typing import Literal


class Permission(StrEnum):
    """One word of a token's ``scope`` claim. None includes another."""

    READ = "quota:read"
    """See limits, usage and decisions of the token's tenants."""
    WRITE = "quota:write"
    """Change limits of the token's tenants."""
    ASK = "quota:ask"
    """Check, reserve, commit, release and adjust for the token's tenants."""
    ADMIN = "quota:admin"
    """What concerns the whole platform: global defaults, dead letters, the doctor. Goes with all tenants only."""


ALL_TENANTS: Literal["*"] = "*"
"""What the ``tenants`` claim says instead of a list of names where the token is for all of them."""
