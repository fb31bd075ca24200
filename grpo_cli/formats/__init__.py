"""File formats: one module or folder for each, behind one interface (`interface`), found by name or first bytes (`registry`)."""
