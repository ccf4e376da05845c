"""The endpoint: one ONNX body, every language a table, over the Open Inference Protocol."""
