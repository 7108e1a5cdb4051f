"""The paper's experiments: run them on your tables, models and machine, and read what came out."""
