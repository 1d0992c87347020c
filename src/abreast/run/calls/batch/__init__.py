"""Model calls in batches: gathered, submitted once, waited for, and journaled as other calls."""
