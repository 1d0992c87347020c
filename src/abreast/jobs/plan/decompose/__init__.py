"""A repository divided into a tree of subplans."""
