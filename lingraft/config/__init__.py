"""Recipes: the typed, validated settings of every stage."""
