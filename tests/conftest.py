"""Hypothesis profiles: `ci` unless asked otherwise, `soak` for `make soak`."""

import os

from hypothesis import HealthCheck, settings

# No deadline: a shared machine is slow at moments, and no test of ours asserts wall-clock time.
settings.register_profile(
    "ci",
    deadline=None,
    derandomize="CI" in os.environ,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("soak", settings.get_profile("ci"), derandomize=False, max_examples=5_000)
settings.load_profile("ci")
