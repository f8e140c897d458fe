"""Reproduction of the tables and figures of Bernau, Grassal, Robl and Kerschbaum 2019."""
