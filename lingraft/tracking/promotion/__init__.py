"""The registry as a contract: what becomes champion, by which evidence, who asked, and what it descends from."""
