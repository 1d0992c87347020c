"""A change of a whole package: renames a keyword in definitions, calls, texts and documentation."""

import re


def rename_keyword(subplan):
    """Rename a word in all Python files of a subplan; the instruction is `old new`."""
    old, new = subplan.instruction.split()
    changed = []
    for file, place in zip(subplan.files, subplan.places, strict=True):
        if place.suffix == ".py":
            text = place.read_bytes().decode()
            renamed = re.sub(rf"\b{old}\b", new, text)
            if renamed != text:
                place.write_bytes(renamed.encode())
                changed.append(file)
    return changed
