"""`python -m keepset` is `keepset`."""

from .cli import main

if __name__ == "__main__":
    main()
