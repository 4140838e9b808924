"""What is real: times the operators of the prediction on the local device. The only folder that imports torch."""
