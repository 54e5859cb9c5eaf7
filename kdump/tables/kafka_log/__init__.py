"""Records as the data source ``kafka-log`` gives them: columns, options, splits, reading."""
