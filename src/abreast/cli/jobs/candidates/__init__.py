"""The driver of the candidates job."""
