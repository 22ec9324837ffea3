"""What people look at: reports, tables, figures, progress."""
