"""The options and the commands, each once: what an option means for a plan, and the grammar of conditions."""
