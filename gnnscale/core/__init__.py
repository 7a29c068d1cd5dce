"""What everything else stands on: stages, errors, files, progress, the machine."""
