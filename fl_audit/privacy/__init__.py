"""Privacy accounting, calibration and bounds; no module here needs torch."""
