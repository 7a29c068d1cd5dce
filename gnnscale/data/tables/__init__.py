"""Tables of columns: CSV and Parquet, read in batches of rows within bounded memory."""
