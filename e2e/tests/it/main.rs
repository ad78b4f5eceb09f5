//! Tests on real control planes. They share one fleet (see `e2e::bed`), each in namespaces of
//! its own; what would disturb the others brings a control plane of its own.
//!
//! The modules are marked as tests so that the lints for tests hold in their helpers too.

#[cfg(test)]
#[path = "../../../crds/tests/cases/list.rs"]
mod cases;

#[cfg(test)]
mod absence;
#[cfg(test)]
mod admission;
#[cfg(test)]
mod backends;
#[cfg(test)]
mod bed;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod commands_doctor;
#[cfg(test)]
mod commands_refused;
#[cfg(test)]
mod cost;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod database_tls;
#[cfg(test)]
mod deletion;
#[cfg(test)]
mod drift;
#[cfg(test)]
mod features;
#[cfg(test)]
mod gateway;
#[cfg(test)]
mod grants;
#[cfg(test)]
mod hub;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod install;
#[cfg(test)]
mod kubeconfigs;
#[cfg(test)]
mod least_rights;
#[cfg(test)]
mod ledger;
#[cfg(test)]
mod mirror;
#[cfg(test)]
mod monitoring;
#[cfg(test)]
mod objects;
#[cfg(test)]
mod outage;
#[cfg(test)]
mod preflight;
#[cfg(test)]
mod process;
#[cfg(test)]
mod purge;
#[cfg(test)]
mod reasons;
#[cfg(test)]
mod render;
#[cfg(test)]
mod renewal;
#[cfg(test)]
mod replicas;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod rotation;
#[cfg(test)]
mod strangers;
#[cfg(test)]
mod suites;
#[cfg(test)]
mod takeover;
#[cfg(test)]
mod target_cluster;
#[cfg(test)]
mod targets;
#[cfg(test)]
mod upgrade;
#[cfg(test)]
mod visible;
#[cfg(test)]
mod webhooks;
#[cfg(test)]
mod webhooks_load;
#[cfg(test)]
mod webhooks_targets;
