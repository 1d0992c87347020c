def make_list_of_ints(sequence):
    result = []
    for one in sequence:
        try:
            number = int(one)
        except ValueError:
            raise nx.NetworkXError(f"sequence is not all integers: {one}") from None
        if number != one:
            raise nx.NetworkXError(f"sequence is not all integers: {one}")
        result.append(number)
    if isinstance(sequence, list):
        sequence[:] = result
        return sequence
    return result
