"""Small programs as a user would write them from the docs; both type checkers read them too."""
