def flatten(obj, result=None):
    if not isinstance(obj, Iterable | Sized) or isinstance(obj, str):
        return obj
    if result is None:
        result = []
    _flatten_into(obj, result)
    return tuple(result)


def _flatten_into(obj, result):
    for item in obj:
        kind = type(item)
        if kind is int or kind is str or kind is float:
            result.append(item)
        elif kind is list or kind is tuple:
            _flatten_into(item, result)
        elif not isinstance(item, Iterable | Sized) or isinstance(item, str):
            result.append(item)
        else:
            _flatten_into(item, result)
