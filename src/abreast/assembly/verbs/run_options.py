"""Options that a run of its own takes, and work inside another run can't."""

from collections.abc import Mapping


def refuse_run_options(options: Mapping[str, object]) -> None:
    """Raise TypeError, with their names, if any of these differs from its default."""
    given = sorted(name for name, value in options.items() if value not in (None, (), [], "auto"))
    if given:
        *first, last = given
        names = f"{', '.join(first)} and {last} are" if first else f"{last} is"
        raise TypeError(f"within a run, {names} the run's own and can't be given again")
