"""What the files of all jobs share: YAML whose values know their lines, problems, shapes, expressions."""
