"""The Ray executor: calls travel to the nodes of a cluster; window, journal and order stay."""
