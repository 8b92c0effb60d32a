"""`python -m offmap`, the same as the command `offmap`."""

from offmap.cli import main

if __name__ == "__main__":
    main()
