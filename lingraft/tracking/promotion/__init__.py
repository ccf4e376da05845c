"""Promotion: which version becomes champion, on which evidence, at whose request, and the lineage of versions."""
