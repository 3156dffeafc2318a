"""The write path: from the recorder in a process to the stream, and to watchers in the same process."""
