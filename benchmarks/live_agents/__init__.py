"""Ten agents side by side on a real repository: live, recorded, and replayed from the record."""
