"""Small things that every part of AICF may use: they import nothing of it but each other and its errors."""
