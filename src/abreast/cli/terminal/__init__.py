"""Output to a terminal: live lines, tables, drawings, prompts."""
