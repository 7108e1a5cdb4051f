"""Past one machine's memory: pools that stay in Parquet files, and work that is spread over processes or a Ray cluster."""
