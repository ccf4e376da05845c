"""The work of a recipe as jobs, and the results that pods share."""
