"""A product on Hopper whose epilogue is a row program."""
