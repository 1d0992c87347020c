"""Running the steps of a workflow: actions, parallel steps, fan-outs, and their records."""
