"""The options, each once: what it means for a plan, and the grammar of conditions."""
