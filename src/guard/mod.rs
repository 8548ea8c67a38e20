//! Caps and loop breaking. Not built yet: nothing in this version refuses or steers a run.
