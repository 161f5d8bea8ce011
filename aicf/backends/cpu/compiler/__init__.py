"""From an emit program to native code."""
