"""Partitions on disk: what they are recognised by, their files, and parts as graph stores."""
