"""Op by op on real models: AOTAutograd's joint graph as a problem, and a schedule of it back on the graph."""
