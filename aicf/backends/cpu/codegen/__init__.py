"""LLVM code that all families share."""
