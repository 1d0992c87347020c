"""The parts of `abreast demo`: commands, reviews, a workflow, and a crash."""
