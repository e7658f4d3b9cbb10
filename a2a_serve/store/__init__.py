"""What must outlive the process: one SQLite file, and what is kept in it."""
