"""Expectations about verdicts that a busy machine may miss.

All verdicts but `faster` hold on every machine, and no wrong candidate is ever accepted. Where a
busy machine leaves a faster candidate undecided and names its noise as the reason, the test is
reported as `xfailed`.
"""

import pytest

_SENTENCES = (
    "can't be told from the noise",
    "too much goes on here",
    "longer, and could not be timed",
    "of the gain",
)
TRIES = 3


def is_noise(verdict, reason):
    """Whether a candidate was left undecided because the machine was too busy to measure it."""
    return verdict == "undecided" and any(sentence in reason for sentence in _SENTENCES)


def expect_verdicts(found, wanted):
    """Compare verdicts by name. `found` has (verdict, reason) of each.

    Only an expected `faster` may be undecided because of noise.
    """
    drowned = {name for name, (verdict, reason) in found.items() if is_noise(verdict, reason)}
    drowned = {name for name in drowned if wanted.get(name) == "faster"}
    verdicts = {name: verdict for name, (verdict, _) in found.items()}
    # Candidates that would have been made of one that is undecided are not there.
    wanted = {name: verdict for name, verdict in wanted.items() if name in found or not drowned}
    assert verdicts == wanted | dict.fromkeys(drowned, "undecided"), found
    if drowned:
        pytest.xfail(f"this machine is too busy to time {', '.join(sorted(drowned))}")


async def expect_faster(time_once):
    """Time a candidate until it is decided, at most three times; expect and return `faster`."""
    for _ in range(TRIES):
        found = await time_once()
        if not is_noise(found.verdict, found.reason):
            break
    expect_verdicts({"candidate": (found.verdict, found.reason)}, {"candidate": "faster"})
    return found
