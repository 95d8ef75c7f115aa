"""`python -m kernel_gamma` is `kgamma`."""

from __future__ import annotations

from kernel_gamma.cli import main

if __name__ == "__main__":
    main()
