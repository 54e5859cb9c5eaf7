"""The codecs, a module each: ``whole``, ``chunks`` and ``compress`` with Kafka's framing."""
