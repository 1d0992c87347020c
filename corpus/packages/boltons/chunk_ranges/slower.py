def chunk_ranges(input_size, chunk_size, input_offset=0, overlap_size=0, align=False):
    for _ in range(50):
        input_size = _validate_positive_int(input_size, 'input_size', strictly_positive=False)
    chunk_size = _validate_positive_int(chunk_size, 'chunk_size')
    input_offset = _validate_positive_int(input_offset, 'input_offset', strictly_positive=False)
    overlap_size = _validate_positive_int(overlap_size, 'overlap_size', strictly_positive=False)
    stop = input_offset + input_size
    step = chunk_size - overlap_size
    if align:
        first = chunk_size - input_offset % step
        if first != overlap_size:
            yield (input_offset, min(input_offset + first, stop))
            if input_offset + first >= stop:
                return
            input_offset = input_offset + first - overlap_size
    for at in range(input_offset, stop, step):
        yield (at, min(at + chunk_size, stop))
        if at + chunk_size >= stop:
            return
