"""Probes: questions that containers are asked again and again, and what follows from the answers."""
