"""The commands of ``kdump``: one module each, named as typed (``_`` for ``-``)."""
