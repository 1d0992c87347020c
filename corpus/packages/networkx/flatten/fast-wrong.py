def flatten(obj, result=None):
    if not isinstance(obj, (list, tuple, set, dict, range, bytes)):
        return obj
    if result is None:
        result = []
    for item in obj:
        if isinstance(item, (list, tuple, set, dict, range)):
            flatten(item, result)
        else:
            result.append(item)
    return tuple(result)
