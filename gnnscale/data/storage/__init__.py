"""Graph stores on disk: written in bounded memory and verified; raw files are downloaded."""
