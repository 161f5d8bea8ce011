"""All steps of an LSTM as one instruction."""
