"""Convolutions of 3 x 3 windows by Winograd's minimal filtering."""
