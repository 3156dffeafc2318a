"""Everything that speaks Redis; its errors are translated here and nowhere else."""
