"""What each role may do: the commands of every function, the rights made of them, and what a user has."""
