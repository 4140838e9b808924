"""The torch kernels that stand for operators, and the memory that they work in."""
