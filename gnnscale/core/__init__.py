"""What all packages use: stages, errors, files, progress, the machine."""
