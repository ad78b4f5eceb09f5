//! The kinds that tests name, as (`apiVersion`, `kind`).

/// A Glance.
pub const GLANCE: (&str, &str) = ("glance.openstack.c5c3.io/v1alpha1", "Glance");
/// A `GlanceBackend`.
pub const BACKEND: (&str, &str) = ("glance.openstack.c5c3.io/v1alpha1", "GlanceBackend");
/// A registered cluster.
pub const TARGET_CLUSTER: (&str, &str) = ("clusters.openstack.c5c3.io/v1alpha1", "TargetCluster");
/// A Deployment.
pub const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");
/// A Service.
pub const SERVICE: (&str, &str) = ("v1", "Service");
/// A `ConfigMap`.
pub const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");
/// A Secret.
pub const SECRET: (&str, &str) = ("v1", "Secret");
/// A Pod.
pub const POD: (&str, &str) = ("v1", "Pod");
/// A Job.
pub const JOB: (&str, &str) = ("batch/v1", "Job");
/// A `CronJob`.
pub const CRON_JOB: (&str, &str) = ("batch/v1", "CronJob");
/// A `PodDisruptionBudget`.
pub const DISRUPTION_BUDGET: (&str, &str) = ("policy/v1", "PodDisruptionBudget");
/// A `HorizontalPodAutoscaler`.
pub const AUTOSCALER: (&str, &str) = ("autoscaling/v2", "HorizontalPodAutoscaler");
/// A `NetworkPolicy`.
pub const NETWORK_POLICY: (&str, &str) = ("networking.k8s.io/v1", "NetworkPolicy");
/// An `HTTPRoute`.
pub const HTTP_ROUTE: (&str, &str) = ("gateway.networking.k8s.io/v1", "HTTPRoute");
/// A Gateway.
pub const GATEWAY: (&str, &str) = ("gateway.networking.k8s.io/v1", "Gateway");
/// A `MariaDB` cluster.
pub const MARIADB: (&str, &str) = ("k8s.mariadb.com/v1alpha1", "MariaDB");
/// A database in it.
pub const DATABASE: (&str, &str) = ("k8s.mariadb.com/v1alpha1", "Database");
/// A database user.
pub const USER: (&str, &str) = ("k8s.mariadb.com/v1alpha1", "User");
/// A grant to a database user.
pub const GRANT: (&str, &str) = ("k8s.mariadb.com/v1alpha1", "Grant");
/// A store of secrets for all namespaces.
pub const CLUSTER_SECRET_STORE: (&str, &str) = ("external-secrets.io/v1", "ClusterSecretStore");
/// A store of secrets for one namespace.
pub const SECRET_STORE: (&str, &str) = ("external-secrets.io/v1", "SecretStore");
/// A Secret to be fetched from a store.
pub const EXTERNAL_SECRET: (&str, &str) = ("external-secrets.io/v1", "ExternalSecret");
