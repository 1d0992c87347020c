"""The supervisor: a small process that starts commands and ends them if the driver dies."""
