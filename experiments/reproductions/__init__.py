"""Reproductions of tables and figures of published papers, compared with the printed numbers."""
