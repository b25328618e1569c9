"""`python -m spolia`."""

from spolia.cli import main

if __name__ == "__main__":
    main()
