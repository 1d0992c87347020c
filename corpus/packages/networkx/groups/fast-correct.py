def groups(many_to_one):
    found = {}
    for key, value in many_to_one.items():
        if value in found:
            found[value].add(key)
        else:
            found[value] = {key}
    return found
