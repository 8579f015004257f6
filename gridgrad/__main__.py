"""`python -m gridgrad NAME ...` is the command `gridgrad NAME ...`."""

from gridgrad.interrupt import listen

listen()  # before all other imports, which take most of a second


def main():
    from gridgrad.experiments.common.command import main

    main()


if __name__ == "__main__":
    main()
