"""What can't be asked of a busy machine: to tell a faster candidate from its own noise.

That nothing wrong is accepted holds on every machine, and so do all verdicts but `faster`. Where a
machine leaves a faster candidate undecided, and says that its noise is why, the test is expected to
fail: it is shown as `xfailed`.
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

    Only what is `faster` may drown in noise.
    """
    drowned = {name for name, (verdict, reason) in found.items() if is_noise(verdict, reason)}
    drowned = {name for name in drowned if wanted.get(name) == "faster"}
    verdicts = {name: verdict for name, (verdict, _) in found.items()}
    assert verdicts == wanted | dict.fromkeys(drowned, "undecided"), found
    if drowned:
        pytest.xfail(f"this machine is too busy to time {', '.join(sorted(drowned))}")


async def expect_faster(time_once):
    """Time a candidate until it is decided, at most three times.

    Return what was found of it, which is `faster`.
    """
    for _ in range(TRIES):
        found = await time_once()
        if not is_noise(found.verdict, found.reason):
            break
    expect_verdicts({"candidate": (found.verdict, found.reason)}, {"candidate": "faster"})
    return found
