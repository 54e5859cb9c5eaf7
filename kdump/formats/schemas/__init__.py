"""Schemas of the records in Kafka's internal topics, one module for each topic."""
