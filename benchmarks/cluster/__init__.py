"""Jobs on two nodes of Ray and a PostgreSQL, while one after another is killed."""
