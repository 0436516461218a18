"""Where does which method help? Comparisons over many data sets at two sizes, and one matrix of their verdicts.

sites → run (comparisons) → rows (a CSV that all the rest is made from) → findings → drawing, page
"""
