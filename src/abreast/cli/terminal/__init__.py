"""What people see in a terminal: live lines, tables, drawings, prompts."""
