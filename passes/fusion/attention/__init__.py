"""What only the attention pattern needs: its batch dimensions, masks, and writes of a row into keys and values."""
