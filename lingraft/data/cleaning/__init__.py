"""Cleaning of text as in CC-100 (Wenzek et al. 2020, CCNet): characters, paragraphs of low quality, duplicates.

A paragraph is a line of a document that is not blank. The rules are the same in all languages.
"""
