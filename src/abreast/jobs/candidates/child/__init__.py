"""The program of the confined child, which runs under the interpreter of the user's project.

It uses only the standard library and the project's pytest. It is copied there under another name
(`abreast.jobs.candidates.behaviour.bundle`), so that the project may be abreast itself or have
another abreast installed. What it reports is not trusted: the comparison is made in the parent.
"""
