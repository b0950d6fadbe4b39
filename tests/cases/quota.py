"""Which reported failures of quota systems do we answer for, and where? Each number is a case that somebody met."""

LISTED = (
    *(2, 5, 6, 8, 11, 12, 13, 15, 16, 17, 21, 22, 23, 25, 27, 29, 33, 38, 39, 40, 41, 42, 44, 45, 46, 48, 49),
    *(50, 51, 53, 55, 57, 58, 59, 61, 63, 64, 65, 68, 69, 70, 73, 74, 75, 76, 77, 79, 82, 83, 84, 85, 87, 89),
    *(94, 95, 96, 97, 98, 99, 100, 101, 102, 104, 107),
)
"""Every case of the collection. Those neither below nor tested in ``test_quota_*.py`` are an error."""

ELSEWHERE = {
    27: "tests/chaos/quota_enforcer/test_crash_points.py::test_killed_at_a_crash_point_it_ends_as_if_nothing_had_been",
    29: "tests/model/test_storage_stories.py::test_a_repeat_is_known_after_a_restart_and_to_another_process",
    95: "tests/model/test_enforcement.py::test_the_storage_keeps_to_the_model",
    98: "tests/unit/quota_enforcer/test_thresholds.py::test_each_mark_is_told_once_exactly_where_it_is",
    104: "tests/chaos/streams/test_torture.py::test_sums_stay_exact_whatever_is_killed_or_frozen",
    107: "tests/integration/streams/test_traps.py::test_failed_batch_is_not_skipped",
}
"""Cases that need real parts, and the test that has them."""

RECONCILER = "with the usage-reconciler: what was missed or lost is healed by census"
SCANNER = "with the disk-scanner: measured disk beside declared disk"

COMING = {
    16: RECONCILER,
    25: RECONCILER,
    57: RECONCILER,
    58: RECONCILER,
    59: RECONCILER,
    61: RECONCILER,
    65: RECONCILER,
    101: SCANNER,
    102: SCANNER,
}
"""Cases whose part is not built yet, and what brings it."""
