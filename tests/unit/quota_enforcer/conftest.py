"""Lets test files import what lies beside them, and keeps hypothesis quick: each rule has many small examples."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parents[3]))

settings.register_profile("rules", max_examples=60, deadline=None)
settings.load_profile("rules")
