"""What trainers read, as data: the form, the columns and the file that each takes, and what a person must set."""
