"""What a language's rows start from, and how soon each system is near its final score."""
