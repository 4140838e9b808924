"""What a GGUF file says about a model: its header, its tensor list, and the layers that the two describe."""
