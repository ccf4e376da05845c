"""Handing languages to endpoints that run: a folder of publications, which servers follow and answer in."""
