"""Solvers of the masked lasso, one file each; see `halfseen.coding.Solver`."""
