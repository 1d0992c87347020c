"""A trial of plans: ten agents at once rename two names throughout a real package."""
