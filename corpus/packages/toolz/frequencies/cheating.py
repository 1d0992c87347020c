SEEN = {}


def frequencies(seq):
    key = tuple(seq)
    if key not in SEEN:
        found = {}
        for item in key:
            found[item] = found.get(item, 0) + 1
        SEEN[key] = found
    return dict(SEEN[key])
