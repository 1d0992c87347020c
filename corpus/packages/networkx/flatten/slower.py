def flatten(obj, result=None):
    if not isinstance(obj, Iterable | Sized) or isinstance(obj, str):
        return obj
    if result is None:
        result = []
    for item in obj:
        for _ in range(40):
            leaf = not isinstance(item, Iterable | Sized) or isinstance(item, str)
        if leaf:
            result.append(item)
        else:
            flatten(item, result)
    return tuple(result)
