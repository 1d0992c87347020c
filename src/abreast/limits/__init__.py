"""Things held while working: slots, rates, budgets, pools, and the gate at which everyone waits for them."""
