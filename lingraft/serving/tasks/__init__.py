"""From texts to rows of a batch, and from what the body says of them to answers: one module a kind of answer."""
