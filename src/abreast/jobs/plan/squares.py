"""Divides a rectangle into rectangles whose areas are given and that are as square as can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float

    def within(self, sides: float, top: float) -> Box:
        """What is left inside of a frame."""
        width, height = max(0.0, self.width - 2 * sides), max(0.0, self.height - top - sides)
        return Box(self.x + sides, self.y + top, width, height)


def squares(areas: Sequence[float], box: Box) -> list[Box]:
    """A box for each area, in their order; together they fill `box`, in proportion to their areas.

    Row by row along the shorter side, the largest first; a row takes another one for as long as its
    worst becomes no worse. (The known way to draw treemaps, by Bruls, Huizing and van Wijk.)
    """
    total = sum(areas)
    if not areas or total <= 0:
        return [Box(box.x, box.y, 0.0, 0.0)] * len(areas)
    scale = box.width * box.height / total
    order = sorted(range(len(areas)), key=lambda place: (-areas[place], place))
    found: dict[int, Box] = {}
    left, at = box, 0
    while at < len(order):
        side = min(left.width, left.height)
        row = [order[at]]
        while at + len(row) < len(order):
            longer = [*row, order[at + len(row)]]
            if _worst([areas[one] * scale for one in longer], side) > _worst(
                [areas[one] * scale for one in row], side
            ):
                break
            row = longer
        left = _lay([(one, areas[one] * scale) for one in row], left, found)
        at += len(row)
    return [found[place] for place in range(len(areas))]


def _worst(row: Sequence[float], side: float) -> float:
    """How far the least square of a row is from a square."""
    thick = sum(row) / side if side else 0.0
    if not thick:
        return float("inf")
    return max(
        max(thick * thick / area, area / (thick * thick)) if area else float("inf") for area in row
    )


def _lay(row: Sequence[tuple[int, float]], box: Box, found: dict[int, Box]) -> Box:
    """Put a row along the shorter side; what is left of the box."""
    total = sum(area for _, area in row)
    upright = box.width >= box.height
    side = box.height if upright else box.width
    thick = total / side if side else 0.0
    at = 0.0
    for place, area in row:
        long = area / thick if thick else 0.0
        found[place] = (
            Box(box.x, box.y + at, thick, long) if upright else Box(box.x + at, box.y, long, thick)
        )
        at += long
    if upright:
        return Box(box.x + thick, box.y, max(0.0, box.width - thick), box.height)
    return Box(box.x, box.y + thick, box.width, max(0.0, box.height - thick))
