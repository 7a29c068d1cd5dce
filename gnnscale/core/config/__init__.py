"""Options: typed configuration, code of the user, and what a found directory may decide."""
