def partition_all(n, seq):
    if type(n) is int and (type(seq) is list or type(seq) is tuple):
        if n > 0:
            for at in range(0, len(seq), n):
                yield tuple(seq[at:at + n])
        return
    if not isinstance(n, int) or n > 0:
        rest = iter(seq)
        chunk = tuple(itertools.islice(rest, n))
        while chunk:
            following = tuple(itertools.islice(rest, n))
            yield chunk
            chunk = following
