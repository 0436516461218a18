"""One file per kind of data; each gives `fallow.data.parts.Parts`."""
