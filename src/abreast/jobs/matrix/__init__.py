"""The matrix job: models x strategies x inputs x repeats, each cell recorded and scored."""
