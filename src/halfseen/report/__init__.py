"""From rows of experiments to text, figures and one page."""
