"""Files: read with bounds, and written whole or not at all. What every other package reads goes through here."""
