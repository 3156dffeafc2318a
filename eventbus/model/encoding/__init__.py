"""Encodes events and objects as bytes and JSON: for readers outside, and for the stream. No I/O."""
