"""The texts by which readers choose objects: field selectors and label selectors."""
