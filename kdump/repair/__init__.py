"""Repairs that no broker does: salvage, rebuilt files, predictions in words."""
