"""From an emit program to cubins, with no GPU present."""
