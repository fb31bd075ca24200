"""One file per kind of run; the order of its steps is here and nowhere else."""
