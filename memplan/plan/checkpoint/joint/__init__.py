"""Op by op on real models: AOTAutograd's joint graph as a rematerialization problem, and its schedule back on the graph."""
