def format_int_list(int_list, delim=',', range_delim='-', delim_space=False):
    output = []
    first = last = None
    for number in sorted(int_list):
        if first is None:
            first = last = number
        elif number - last == 1:
            last = number
        elif number - last > 1:
            output.append(_int_range(first, last, range_delim))
            first = last = number
    if first is not None:
        output.append(_int_range(first, last, range_delim))
    return (delim + ' ' if delim_space else delim).join(output)


def _int_range(first, last, between):
    return '{:d}'.format(first) if first == last else '{:d}{}{:d}'.format(first, between, last)
