"""Experiments of four papers repeated: the journal and the thesis, Tan et al. 2007, Pandey & Olston 2005."""
