//! The metric set, behind one module so that the library can be exchanged.
