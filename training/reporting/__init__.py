"""Results for people: reports, tables, figures, progress."""
