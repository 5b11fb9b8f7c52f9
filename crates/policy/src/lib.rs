//! What an attribute means: classes, schemes, inheritance.
