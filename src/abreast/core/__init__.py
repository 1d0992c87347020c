"""The pure part: items, outcomes, the window and the rules of halting; standard library only, no I/O."""
