//! The real server binary, started as a user would start it, for tests with the published client.
