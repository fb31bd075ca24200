"""Writing results: choosing outputs, inserting columns, writing new files, verifying."""
