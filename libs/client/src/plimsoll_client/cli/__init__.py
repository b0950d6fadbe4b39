"""The ``plimsoll`` command: how do operators set limits, see usage, and find out why something was refused."""
