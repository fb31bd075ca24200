"""What can be asked for: each option once, what it means for a plan, and the grammar of conditions."""
