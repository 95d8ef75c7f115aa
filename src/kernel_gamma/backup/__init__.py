"""A mind in one file: taken while it lives, checked, put back."""
