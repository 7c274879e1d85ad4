"""How a method is trained: the loop, and what it stands on."""
