from io import StringIO

from plimsoll_devkit.demo.story import Story


def told(story: Story) -> list[list[str]]:
    return [line.split() for line in story.table().splitlines()[1:]]


def test_what_is_seen_as_expected_is_ok() -> None:
    story = Story(StringIO())
    story.expect("requests", 2000, 2000)
    story.expect("in flight", "some", 17, holds=True)
    assert told(story) == [["requests", "2,000", "2,000", "ok"], ["in", "flight", "some", "17", "ok"]]
    assert not story.failed


def test_one_difference_fails_the_demo() -> None:
    story = Story(StringIO())
    story.expect("requests", 2000, 2000)
    story.expect("allowed", 10, 11)
    assert told(story)[1] == ["allowed", "10", "11", "DIFFERS"]
    assert story.failed


def test_what_cannot_be_looked_at_here_is_skipped_and_said() -> None:
    story = Story(StringIO())
    story.expect("requests", 2000, 2000)
    story.skip("alert", "fires", "no Prometheus here")
    assert told(story)[1] == ["alert", "fires", "no", "Prometheus", "here", "skipped"]
    assert not story.failed


def test_a_demo_that_looked_at_nothing_has_failed() -> None:
    assert Story(StringIO()).failed


def test_chapters_are_numbered_and_plain_where_nobody_sees_colours() -> None:
    out = StringIO()
    story = Story(out)
    story.chapter("First", "A sentence.")
    story.chapter("Second", "Another.")
    assert "1. First" in out.getvalue()
    assert "2. Second" in out.getvalue()
    assert "\x1b" not in out.getvalue()
