def merge_with(func, *dicts, **kwargs):
    if len(dicts) == 1 and not isinstance(dicts[0], Mapping):
        dicts = dicts[0]
    factory = _get_factory(merge_with, kwargs)
    values = {}
    for one in dicts:
        for key, value in one.items():
            values.setdefault(key, []).append(value)
    result = factory()
    for key, value in values.items():
        result[key] = func(value) if len(value) > 1 else value[0]
    return result
