"""Division of a repository into a tree of subplans."""
