"""``python -m deepccg`` is the program ``deepccg``, also where that is not on the path."""

from deepccg.cli import main

if __name__ == "__main__":
    main()
