"""What `abreast demo` shows."""
