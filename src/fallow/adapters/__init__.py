"""fallow inside what people already use; each module needs its own library."""
