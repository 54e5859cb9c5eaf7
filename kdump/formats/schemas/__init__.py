"""The schemas of Kafka's internal records, one module for each family of them."""
