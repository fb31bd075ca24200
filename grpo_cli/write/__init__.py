"""Results into files: where they go, woven in or written afresh, resumed, and checked."""
