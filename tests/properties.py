"""How many examples a property is tried with."""

from hypothesis import settings

USUAL = settings.get_profile("ci").max_examples
FEWEST = 10  # examples, unless a property asks for fewer in every profile


def tried(count, **more):
    """Settings with so many examples; a profile with fewer than usual has as many times fewer."""
    part = min(1, settings.default.max_examples / USUAL)
    return settings(max_examples=max(round(count * part), min(count, FEWEST)), **more)
