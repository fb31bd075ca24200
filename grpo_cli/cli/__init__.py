"""The command line: from words to options, and the body of each command that does more than run and print."""
