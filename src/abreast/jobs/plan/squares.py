"""Divides a rectangle into rectangles of given areas that are as square as possible (a treemap)."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float

    def within(self, sides: float, top: float) -> "Box":
        """The rectangle inside of a frame."""
        width, height = max(0.0, self.width - 2 * sides), max(0.0, self.height - top - sides)
        return Box(self.x + sides, self.y + top, width, height)


def squares(areas: Sequence[float], box: Box) -> list[Box]:
    """A box for each area, in their order; together they fill `box`, in proportion to their areas.

    Areas are laid out in rows along the shorter side, the largest first; a row takes another area
    as long as its worst aspect ratio does not get worse. (Squarified treemaps, by Bruls, Huizing
    and van Wijk.)
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
            if _worst_ratio([areas[one] * scale for one in longer], side) > _worst_ratio(
                [areas[one] * scale for one in row], side
            ):
                break
            row = longer
        left = _place_row([(one, areas[one] * scale) for one in row], left, found)
        at += len(row)
    return [found[place] for place in range(len(areas))]


def _worst_ratio(row: Sequence[float], side: float) -> float:
    """The worst aspect ratio of a row."""
    thickness = sum(row) / side if side else 0.0
    if not thickness:
        return float("inf")
    return max(
        max(thickness * thickness / area, area / (thickness * thickness)) if area else float("inf")
        for area in row
    )


def _place_row(row: Sequence[tuple[int, float]], box: Box, found: dict[int, Box]) -> Box:
    """Place a row along the shorter side; return the rest of the box."""
    total = sum(area for _, area in row)
    upright = box.width >= box.height
    side = box.height if upright else box.width
    thickness = total / side if side else 0.0
    at = 0.0
    for place, area in row:
        length = area / thickness if thickness else 0.0
        found[place] = (
            Box(box.x, box.y + at, thickness, length)
            if upright
            else Box(box.x + at, box.y, length, thickness)
        )
        at += length
    if upright:
        return Box(box.x + thickness, box.y, max(0.0, box.width - thickness), box.height)
    return Box(box.x, box.y + thickness, box.width, max(0.0, box.height - thickness))
