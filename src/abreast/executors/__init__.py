"""Where an item's work is carried out: tasks and threads here, processes beside us, later a cluster."""
