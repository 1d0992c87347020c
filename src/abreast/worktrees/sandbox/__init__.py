"""The sandbox program, and the kernel's filters that it uses where there are no namespaces.

Every module here runs as a part of that program too, so none imports anything of abreast.
"""
