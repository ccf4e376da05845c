"""Cleaning text as CC-100 was (Wenzek et al. 2020, CCNet): characters, paragraphs of low quality, and duplicates.

A paragraph is a line of a document that is not blank. Nothing here knows a language: the same rules hold in all.
"""
