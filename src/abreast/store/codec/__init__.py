"""Values and errors as JSON text, and back."""
