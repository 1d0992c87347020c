"""Values as snapshots that can be compared between processes."""
