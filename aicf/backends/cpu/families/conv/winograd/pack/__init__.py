"""The weight of Winograd's products: its layout, and the kernel that transforms and packs it."""
