//! `SecretsReady`: each gate says what it waits for, and opens at the event that ends the wait.

use anyhow::Result;
use e2e::{
    bed::run,
    doubles::status::Behaviour,
    expect::Object,
    fleet::Fleet,
    kinds, registration,
    scenario::{cluster_secret_store, external_secret, mariadb, secret_store},
};
use serde_json::{Value, json};

use super::stage::{Stage, holds, later, on_hub_and_target, says, soon};

on_hub_and_target!(
    each_gate_of_the_secrets_says_what_it_waits_for,
    a_configuration_that_cannot_be_rendered_says_why,
);

const TYPE: &str = "SecretsReady";

/// One of the two credential gates.
struct Gate<'a> {
    secret: &'a str,
    reason: &'a str,
    noun: &'a str,
    waiting: &'a str,
}

async fn each_gate_of_the_secrets_says_what_it_waits_for(
    fleet: &'static Fleet,
    place: &'static str,
) -> Result<()> {
    let stage = Stage::open(fleet, "gates", place).await?;
    let (children, ns) = (stage.children()?, stage.namespace());
    let mood = stage.doubles()?.mood();
    let store = format!("{ns}-other");
    let reference = json!({ "kind": "ClusterSecretStore", "name": store });
    let scenario = stage.scenario("images").with("secretStoreRef", reference);
    children.apply(&mariadb(ns, "mariadb")).await?;

    // The store: absent, then there.
    scenario.apply_resources(stage.hub()).await?;
    let glance = stage.glance("images");
    let no_store =
        format!("ClusterSecretStore \"{store}\" is not ready; upstream secret backend unreachable");
    says(&glance, later(), (TYPE, "SecretStoreNotReady", &no_store)).await?;
    children.apply(&cluster_secret_store(&store)).await?;

    let database = Gate {
        secret: "images-db",
        reason: "WaitingForDBCredentials",
        noun: "Database credentials",
        waiting: "Waiting for ESO to sync database credentials from OpenBao",
    };
    climb(&stage, &glance, &database, &["username", "password"]).await?;
    let service = Gate {
        secret: "images-service-user",
        reason: "WaitingForServiceUserCredentials",
        noun: "Service-user credentials",
        waiting: "Waiting for ESO to sync the Glance service-user password from OpenBao",
    };
    climb(&stage, &glance, &service, &["password"]).await?;
    holds(&glance, soon(), (TYPE, "SecretsAvailable")).await?;

    // A store that breaks later shows, although every Secret is there.
    mood.set(kinds::CLUSTER_SECRET_STORE, &store, Behaviour::Broken);
    says(&glance, soon(), (TYPE, "SecretStoreNotReady", &no_store)).await?;
    mood.set(kinds::CLUSTER_SECRET_STORE, &store, Behaviour::Healthy);
    holds(&glance, soon(), (TYPE, "SecretsAvailable")).await?;

    // The same for a store of the namespace.
    let reference = json!({ "kind": "SecretStore", "name": "own" });
    let scenario = scenario.with("secretStoreRef", reference);
    stage.hub().apply(&scenario.glance()).await?;
    let no_store = "SecretStore \"own\" is not ready; upstream secret backend unreachable";
    says(&glance, soon(), (TYPE, "SecretStoreNotReady", no_store)).await?;
    children.apply(&secret_store(ns, "own")).await?;
    holds(&glance, soon(), (TYPE, "SecretsAvailable")).await?;
    mood.set(kinds::SECRET_STORE, ns, Behaviour::Broken);
    says(&glance, soon(), (TYPE, "SecretStoreNotReady", no_store)).await?;
    mood.set(kinds::SECRET_STORE, ns, Behaviour::Healthy);
    holds(&glance, soon(), (TYPE, "SecretsAvailable")).await?;

    // A Glance that comes late to a waiting ExternalSecret is told of it as well: nothing had
    // asked for that object when it was last seen.
    mood.set(kinds::EXTERNAL_SECRET, ns, Behaviour::Broken);
    children
        .apply(&external_secret(ns, "late-db", &["username", "password"]))
        .await?;
    Object::new(children, kinds::EXTERNAL_SECRET, ns, "late-db")
        .condition(soon(), e2e::expect::Wanted::of("Ready").status("False"))
        .await?;
    stage.hub().apply(&stage.scenario("late").glance()).await?;
    let late = stage.glance("late");
    says(&late, soon(), (TYPE, database.reason, database.waiting)).await
}

#[test]
fn a_namespace_that_a_registration_leaves_out_is_told_by_both_controllers() {
    run(async |fleet: &'static Fleet| {
        let stage = Stage::open(fleet, "scope", "edge-1").await?;
        let (hub, ns) = (stage.hub(), stage.namespace());
        let edge = stage.children()?;
        let scenario = stage.scenario("images").backend("store", true);
        scenario.apply_surroundings(edge).await?;
        scenario.apply_credentials(edge).await?;
        let elsewhere = format!("{ns}-elsewhere");
        edge.namespace(&elsewhere).await?;
        let kubeconfig = registration::grant(
            edge,
            &stage.site.access_namespace(),
            &[ns, &elsewhere],
            &Value::Null,
        )
        .await?;
        let clusters = stage.site.clusters_namespace();
        let scoped = async |namespaces: &str| {
            registration::register(hub, &clusters, "edge-1", &kubeconfig, Some(namespaces)).await
        };
        scoped(&elsewhere).await?;
        scenario.apply_resources(hub).await?;
        let (glance, backend) = (stage.glance("images"), stage.site.backend("store"));
        let outside = |name: &str| {
            format!("unable to get: {ns}/{name} because of unknown namespace for the cache")
        };
        let gate = outside("images-db");
        says(&glance, later(), (TYPE, "WaitingForDBCredentials", &gate)).await?;
        let keys = outside("store-credentials");
        let credentials = "CredentialsReady";
        says(
            &backend,
            soon(),
            (credentials, "WaitingForCredentials", &keys),
        )
        .await?;
        let made = stage.child(kinds::SECRET, "images-db-connection")?;
        assert!(made.get().await?.is_none(), "nothing is made out of scope");

        // A store of the namespace is the first that is out of reach.
        let own = json!({ "kind": "SecretStore", "name": "own" });
        let other = scenario.clone().with("secretStoreRef", own);
        hub.apply(&other.glance()).await?;
        let store = outside("own");
        says(&glance, soon(), (TYPE, "SecretStoreNotReady", &store)).await?;
        hub.apply(&scenario.glance()).await?;
        says(&glance, soon(), (TYPE, "WaitingForDBCredentials", &gate)).await?;

        // The registration is widened: nobody waits for a poll.
        scoped(&format!("{elsewhere},{ns}")).await?;
        holds(&backend, soon(), (credentials, "CredentialsAvailable")).await?;
        holds(&glance, soon(), (TYPE, "SecretsAvailable")).await?;
        glance.is_ready(later()).await?;

        // Narrowed again, what runs stays as it is.
        let before = stage.live(kinds::DEPLOYMENT, "images").await?;
        scoped(&elsewhere).await?;
        says(&glance, soon(), (TYPE, "WaitingForDBCredentials", &gate)).await?;
        let after = stage.live(kinds::DEPLOYMENT, "images").await?;
        assert_eq!(before.metadata.uid, after.metadata.uid);
        assert_eq!(before.metadata.generation, after.metadata.generation);
        Ok(())
    });
}

/// All that a gate can say, from nothing at all to a usable Secret.
async fn climb(stage: &Stage, glance: &Object<'_>, gate: &Gate<'_>, keys: &[&str]) -> Result<()> {
    let (children, ns) = (stage.children()?, stage.namespace());
    let mood = stage.doubles()?.mood();
    let Gate {
        secret,
        reason,
        noun,
        waiting,
    } = gate;
    let absent = format!("{noun} ExternalSecret {ns}/{secret} not found yet");
    let lacking = format!("{noun} Secret exists but is missing expected keys");
    says(glance, soon(), (TYPE, reason, &absent)).await?;

    // By hand, and empty: as good as missing.
    stage.secret(secret, &[("password", "")]).await?;
    let by_hand = format!("{absent}; the Secret exists but lacks a value for: password");
    says(glance, soon(), (TYPE, reason, &by_hand)).await?;
    stage.delete(kinds::SECRET, secret).await?;

    mood.set(kinds::EXTERNAL_SECRET, ns, Behaviour::Broken);
    children
        .apply(&external_secret(ns, secret, &["other"]))
        .await?;
    says(glance, soon(), (TYPE, reason, waiting)).await?;
    mood.set(kinds::EXTERNAL_SECRET, ns, Behaviour::Healthy);
    let named = format!("{lacking}: password");
    says(glance, soon(), (TYPE, reason, &named)).await?;
    mood.set(kinds::EXTERNAL_SECRET, ns, Behaviour::Silent);
    stage.delete(kinds::SECRET, secret).await?;
    says(glance, soon(), (TYPE, reason, &lacking)).await?;

    mood.set(kinds::EXTERNAL_SECRET, ns, Behaviour::Healthy);
    children.apply(&external_secret(ns, secret, keys)).await?;
    Ok(())
}

async fn a_configuration_that_cannot_be_rendered_says_why(
    fleet: &'static Fleet,
    place: &'static str,
) -> Result<()> {
    let stage = Stage::open(fleet, "render", place).await?;
    let (children, ns) = (stage.children()?, stage.namespace());
    let policy = async |document: Option<&str>| {
        let data = document.map_or(json!({ "other": "x" }), |d| json!({ "policy.yaml": d }));
        children
            .apply(&json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "namespace": ns, "name": "rules" },
                "data": data,
            }))
            .await
    };
    let scenario = stage.scenario("images").backend("store", true).with(
        "policyOverrides",
        json!({ "configMapRef": { "name": "rules" } }),
    );
    stage.site.apply(&scenario).await?;
    let glance = stage.glance("images");
    let place = format!("ConfigMap {ns}/rules");
    let loading = "loading policy from ConfigMap";

    let absent = format!("{loading}: getting {place}: configmaps \"rules\" not found");
    says(&glance, later(), (TYPE, "ConfigError", &absent)).await?;
    policy(None).await?;
    let keyless = format!("{loading}: {place} does not contain key \"policy.yaml\"");
    says(&glance, soon(), (TYPE, "ConfigError", &keyless)).await?;
    policy(Some("")).await?;
    let empty = format!("{loading}: {place} key \"policy.yaml\" is empty or parsed to nil");
    says(&glance, soon(), (TYPE, "ConfigError", &empty)).await?;
    policy(Some("get_images: role:reader\n")).await?;
    holds(&glance, soon(), (TYPE, "SecretsAvailable")).await?;
    glance.is_ready(later()).await?;

    // What runs goes on running; the CR's own mistakes are told in the same place.
    let before = stage.live(kinds::DEPLOYMENT, "images").await?;
    let nameless = json!([{ "name": "", "configSection": "audit", "config": { "x": "1" } }]);
    let unnamed = scenario.clone().with("plugins", nameless);
    stage.hub().apply(&unnamed.glance()).await?;
    let no_name = "plugin at index 0 has an empty Name";
    says(&glance, soon(), (TYPE, "ConfigError", no_name)).await?;
    let idle = json!([{ "name": "a", "filterFactory": "", "position": "before" }]);
    let broken = scenario.clone().with("middleware", idle);
    stage.hub().apply(&broken.glance()).await?;
    let factory = "middleware \"a\" in pipeline \"api\" has an empty FilterFactory";
    says(&glance, soon(), (TYPE, "ConfigError", factory)).await?;
    let after = stage.live(kinds::DEPLOYMENT, "images").await?;
    assert_eq!(before.metadata.generation, after.metadata.generation);
    stage.hub().apply(&scenario.glance()).await?;
    glance.is_ready(soon()).await?;
    Ok(())
}
