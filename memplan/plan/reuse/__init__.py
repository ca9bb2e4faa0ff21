"""Static buffer reuse: where every buffer lies in one arena, solved and checked."""
