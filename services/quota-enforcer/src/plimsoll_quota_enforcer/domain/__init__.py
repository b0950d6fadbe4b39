"""The decisions, as pure functions on plain data: no clock, no I/O, no log."""
