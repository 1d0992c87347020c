"""Work in copies of slots on the nodes of a cluster, which need no files of the driver."""
