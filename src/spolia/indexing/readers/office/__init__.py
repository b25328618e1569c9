"""Documents of word processors, slides, sheets and books."""
