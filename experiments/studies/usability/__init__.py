"""The study `usability`, and the programs that it compares: `serial.py` and `torch_serial.py`, and others made parallel."""
