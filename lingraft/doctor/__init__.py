"""What a cluster lacks for a recipe, before its first run: every gap with what to do about it.

Whatever keeps us from looking, a missing right or a lost connection, is a finding too, and the other looks go on.
"""
