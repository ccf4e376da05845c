"""The stages of a recipe, from the primary to the evaluation of a language; each trains or measures one thing."""
