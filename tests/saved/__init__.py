"""What each version of Spolia left: a store, flow files, a baseline and a study, in an archive for each version."""
