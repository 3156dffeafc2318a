"""What tests of several folders share: systems to write to and read from, and worlds to test in."""
