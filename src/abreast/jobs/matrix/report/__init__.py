"""The report of a study: accounts, figures, page and Markdown."""
