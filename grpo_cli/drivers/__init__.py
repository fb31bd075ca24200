"""Drivers: how the one engine is fed. They map, merge and finish; they hold no arithmetic."""
