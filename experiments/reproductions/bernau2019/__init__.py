"""The tables and figures of Bernau, Grassal, Robl and Kerschbaum 2019."""
