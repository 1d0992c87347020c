"""What headers of replies say of a rate: how old and how true they are, and how a server counts."""
