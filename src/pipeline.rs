//! One reconcile pass: its steps, what they report, and what becomes of the reports.

pub mod notice;
