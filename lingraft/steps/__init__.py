"""The stages as pipeline steps: a recipe in JSON, folders, and a tracking run to stand under.

A KFP component is one call of a function here, so that all logic stays where it is tested as plain Python. What a
function returns are the numbers to show beside the step. What imports PyTorch is imported where it is needed: half of
the steps move data or ask the registry, and would wait for it in vain.
"""
