"""Channel A: the static truths. Small, approved by a person, the same bytes until one changes."""
