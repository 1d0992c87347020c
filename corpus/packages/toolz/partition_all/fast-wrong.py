def partition_all(n, seq):
    items = tuple(seq)
    for at in range(0, len(items), n):
        yield items[at:at + n]
