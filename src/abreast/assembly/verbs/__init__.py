"""The jobs as functions: what `abreast.sample`, `abreast.workflow` and the others are."""
