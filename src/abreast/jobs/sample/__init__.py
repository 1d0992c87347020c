"""Sample: draws from a model in `breadth` branches of `depth` rounds, until a draw passes."""
