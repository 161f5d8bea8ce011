"""What the kernels of all backends share: their base class, records and problems."""
