"""Pools that stay in Parquet files, and work spread over processes or a Ray cluster."""
