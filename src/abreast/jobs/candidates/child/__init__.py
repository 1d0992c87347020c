"""What runs in the confined child, under the interpreter of the user's project: the standard library and its pytest.

It is copied there under another name (`abreast.jobs.candidates.behaviour.bundle`), so that the
project may be abreast itself, or have another abreast installed. Whatever it says is a claim: the
judge is elsewhere.
"""
