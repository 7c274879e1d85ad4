"""What happens around the training loop: each callback is one habit of a training."""
