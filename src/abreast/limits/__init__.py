"""What work must hold to run: slots, rates, budgets and pools, and the gate that grants them."""
