"""Calls of cuDNN at run time, through its frontend: plain values become a plan, and a plan a call on a stream."""
