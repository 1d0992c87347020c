"""Bounds on the thinking of models."""

from abreast.models.port import Request


def output_bound(request: Request) -> int | None:
    """The bound on the output where that includes the thinking; None if there is none."""
    if request.max_tokens is None:
        return None
    return request.max_tokens + (request.thinking_tokens or 0)


def unbounded_thinking(request: Request) -> tuple[str, ...]:
    """What was not sent where thinking is only bounded by `output_bound`, and that is None."""
    unsent = request.thinking_tokens is not None and request.max_tokens is None
    return ("without thinking_tokens",) if unsent else ()
