"""Published runs that state how many tokens a second they did: ``benchmarks/recommend.py`` predicts them."""
