"""What crosses a boundary: frozen values and Protocols; no I/O, no clock. Read this first."""
