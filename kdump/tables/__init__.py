"""Records as Arrow tables, and the Spark data source over them."""
