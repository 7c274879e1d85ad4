"""A shipped model on new data: a run folder, a saved estimator, an ONNX file."""
