"""Results as text for people: rich renderables only, no reading of files and no arithmetic of advantages."""
