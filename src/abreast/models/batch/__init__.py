"""Batches of providers: many requests in one submission, answered within a day, at half price."""
