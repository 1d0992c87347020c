"""Sample: draw from a model in `breadth` branches of `depth` rounds.

Check, repair, until one draw passes.
"""
