"""What the PyTorch face and the Keras face of the layer share, in plain Python: needs no torch, no Keras, no NumPy."""
