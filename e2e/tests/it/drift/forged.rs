//! Content that no update can set right: of what is immutable, and of what was made so.

use anyhow::Result;
use e2e::{expect::eventually, operator::Running};
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use super::{Drift, content, is, owned, soon, split};

impl Drift<'_> {
    /// Content that no update can set right.
    pub async fn lock(&self, key: &str) -> Result<()> {
        self.settled().await?;
        let before = self.object(key).exists(soon()).await?;
        let locked = json!({
            "immutable": true,
            "stringData": { "connection": "mysql+pymysql://somebody@else/where" },
        });
        self.patch(key, &locked).await?;
        self.object(key)
            .satisfies(soon(), "to be as it was, and free", |now| {
                is(now.data["immutable"] != true, "it is immutable")?;
                is(content(now) == content(&before), "it says something else")
            })
            .await?;
        Ok(())
    }

    /// What cannot be edited can be made again with other content, while nobody looks.
    pub async fn forge(&self, running: &mut Running) -> Result<()> {
        self.settled().await?;
        let all = owned(self.cluster, &self.scenario).await?;
        let immutable = all
            .iter()
            .filter(|(_, child)| child.data["immutable"] == true);
        for (key, genuine) in immutable {
            self.settled().await?;
            let (kind, name) = split(key);
            let api = self
                .cluster
                .any(kind.0, kind.1, Some(self.site.namespace()));
            let mut forged = genuine.clone();
            forged.metadata.uid = None;
            forged.metadata.resource_version = None;
            forged.metadata.managed_fields = None;
            for value in forged.data["data"].as_object_mut().unwrap().values_mut() {
                // Text of a ConfigMap, base64 of a Secret.
                *value = json!("Zm9yZ2Vk");
            }
            running.freeze();
            let replaced = async {
                api.delete(name, &DeleteParams::default()).await?;
                api.create(&PostParams::default(), &forged).await
            };
            let replaced = replaced.await;
            running.thaw();
            replaced?;
            let what = format!("the pods to mount what {key} was");
            eventually(soon(), &what, async || {
                let now = owned(self.cluster, &self.scenario).await?;
                let deployment = &now[&format!("Deployment/{}", self.scenario.name())];
                let volumes = deployment.data["spec"]["template"]["spec"]["volumes"].to_string();
                let mounted = now.iter().any(|(other, child)| {
                    let (other, name) = split(other);
                    other == kind
                        && content(child) == content(genuine)
                        && volumes.contains(&format!("\"{name}\""))
                });
                anyhow::ensure!(mounted, "{volumes}");
                Ok(())
            })
            .await?;
        }
        self.settled().await
    }
}
