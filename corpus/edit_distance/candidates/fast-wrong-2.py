def edit_distance(one: str, other: str) -> int:
    first, second = one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass")
    above = list(range(len(second) + 1))
    for row, letter in enumerate(first, 1):
        line = [row]
        for at, two in enumerate(second):
            line.append(min(above[at + 1] + 1, line[at] + 1, above[at] + (letter != two)))
        above = line
    return above[-1]
