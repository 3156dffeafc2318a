"""The commands for people; those of the workers are in `workers`."""
