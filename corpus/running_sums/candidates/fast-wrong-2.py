from array import array
from itertools import accumulate


def running_sums(numbers: list[int], window: int) -> list[int]:
    if window < 1:
        raise ValueError("a window has a size")
    sums = array("q", [0, *accumulate(numbers)])
    return [sums[at + window] - sums[at] for at in range(len(numbers) - window + 1)]
