"""Sample: draw from a model in `breadth` branches of `depth` rounds; check, repair, until one draw passes."""
