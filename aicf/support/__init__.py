"""Small things that every part of AICF may use; they import none of it but its errors."""
