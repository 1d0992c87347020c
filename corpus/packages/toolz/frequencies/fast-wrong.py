def frequencies(seq):
    found = {}
    get = found.get
    for item in seq:
        found[item] = get(item, 0) + 1
    return dict(sorted(found.items()))
