"""When limits end, as agents say it."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from abreast.agents.reset_time import seconds_until_reset

NOW = datetime(2026, 5, 1, 14, 0, tzinfo=UTC)
HOUR = 3600.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("usage limit reached, resets at 3pm", HOUR),
        ("You've hit your limit · resets 3pm (UTC)", HOUR),
        ("5-hour limit reached ∙ resets 2:30 p.m", HOUR / 2),
        ("limit reached, resets 1pm", 23 * HOUR),
        ("limit reached, resets 12am", 10 * HOUR),
        ("resets at 15:30", 1.5 * HOUR),
        ("resets 5pm (Europe/Berlin)", HOUR),
        ("Claude AI usage limit reached|1777647600", HOUR),
        ("Claude AI usage limit reached|1777647600000", HOUR),
        ("resets at 2026-05-01T15:00:00Z", HOUR),
        ("resets at 2026-05-01 15:00", HOUR),
        ("You've hit your usage limit. Try again in 3 days 4 hours 12 minutes.", 76.2 * HOUR),
        ("Please try again in 20s", 20.0),
        ("try again at May 2nd, 2026 3:00 PM.", 25 * HOUR),
        ("resets May 2, 3pm", 25 * HOUR),
        ("resets Apr 30, 2pm", 364 * 24 * HOUR),
        ("resets at 2026-05-01T13:00:00Z", 0.0),
        ("usage limit reached", None),
        ("limit of 13pm things", None),
        ("resets Feb 30, 3pm", None),
        ("resets 3pm (No/Where)", HOUR),
    ],
)
def test_a_limit_ends_when_the_text_says(text, seconds):
    assert seconds_until_reset(text, NOW) == seconds


def test_a_time_without_a_zone_is_a_time_here():
    here = NOW.astimezone(timezone(timedelta(hours=-7)))
    assert seconds_until_reset("resets 8am", here) == HOUR
