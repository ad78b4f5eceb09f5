//! Tests on real control planes. They share one fleet (see `e2e::bed`), each in namespaces of
//! its own; what would disturb the others brings a control plane of its own.

mod bed;
