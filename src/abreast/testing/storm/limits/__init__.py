"""The rates and quotas of a storm, and what its headers say of them."""
