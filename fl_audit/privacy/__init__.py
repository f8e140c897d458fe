"""Privacy accounting, calibration of noise, and bounds on attacks; no module here imports torch."""
