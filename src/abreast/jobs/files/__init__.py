"""The shared parts of job files: YAML with line numbers, problems, shapes, amounts, expressions."""
