"""`python -m ordsmed` is the command `ordsmed`."""

from ordsmed.cli import main

if __name__ == "__main__":
    main()
