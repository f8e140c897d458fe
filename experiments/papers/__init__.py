"""Reproductions of tables and figures of published papers, which compare our numbers with the printed ones."""
