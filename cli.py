"""Run roofcast from a checkout: ``python cli.py estimate …``."""

from calc.commands import main

if __name__ == "__main__":
    main()
