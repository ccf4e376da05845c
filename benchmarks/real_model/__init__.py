"""lingraft beside what a user of an English embedding model would do today to search in another language."""
