"""Your data: image folders, tables, arrays, and cards that say how to read them."""
