def running_sums(numbers: list[int], window: int) -> list[int]:
    if window < 1:
        raise ValueError("a window has a size")
    total = sum(numbers[:window])
    sums = [total]
    for new, old in zip(numbers[window:], numbers):
        total += new - old
        sums.append(total)
    return sums
