def complement_int_list(
        range_string, range_start=0, range_end=None,
        delim=',', range_delim='-'):
    known = set(parse_int_list(range_string, delim, range_delim))
    if range_end is None:
        range_end = max(known) + 1 if known else range_start
    rest = set(range(max(range_start, 0), range_end)) - known
    return format_int_list(rest, delim, range_delim)
