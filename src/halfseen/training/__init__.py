"""The ways to train dictionary, codes and network together, and the loop around them."""
