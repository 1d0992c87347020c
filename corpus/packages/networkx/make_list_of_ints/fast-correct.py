def make_list_of_ints(sequence):
    if not isinstance(sequence, list):
        result = []
        for one in sequence:
            result.append(one if type(one) is int else _as_int(one))
        return result
    for at, one in enumerate(sequence):
        if not isinstance(one, int):
            sequence[at] = _as_int(one)
    return sequence


def _as_int(one):
    try:
        number = int(one)
    except ValueError:
        raise nx.NetworkXError(f"sequence is not all integers: {one}") from None
    if number != one:
        raise nx.NetworkXError(f"sequence is not all integers: {one}")
    return number
