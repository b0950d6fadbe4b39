"""How do alert rules written for production show themselves within a demo's or a test's patience?"""

import re

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

# Windows, offsets, `for` and `interval`. Durations inside names (ratio_rate5m) and thresholds are not touched.
_DURATION = re.compile(
    r"(?P<before>\[|\boffset |^\s*(?:- )?(?:for|interval|keep_firing_for): )(?P<number>\d+)(?P<unit>[smhd])\b",
    re.MULTILINE,
)


def shortened(rules: str, factor: int) -> str:
    """Return a Prometheus rule file with every duration divided by `factor`; all else stays as it is.

    A window has to hold two scrapes still: with a factor of 60, `[5m]` needs one every 2 s.
    """

    def shorter(found: re.Match[str]) -> str:
        milliseconds = int(found["number"]) * _SECONDS[found["unit"]] * 1000 // factor
        return f"{found['before']}{max(milliseconds, 1)}ms"

    return _DURATION.sub(shorter, rules)
