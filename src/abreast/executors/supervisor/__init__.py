"""The supervisor: a small process that starts commands and ends them, also when the driver dies."""
