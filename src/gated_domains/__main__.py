"""``python -m gated_domains``: the same as the command ``gated-domains``, for torchrun."""

from gated_domains.cli import main

if __name__ == "__main__":
    main()
