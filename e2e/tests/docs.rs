//! The documentation, typed by somebody who follows it word by word: every command of every page runs on a fleet of its
//! own, one page after the other.

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        os::unix::fs::symlink,
        path::{Path, PathBuf},
        process::Command,
    };

    use anyhow::{Result, bail, ensure};
    use e2e::{
        assets::Component,
        bed::block_on,
        checkout,
        fleet::{Fleet, Shape},
        operator::{Operator, Running, binary},
        pages::{self, Act},
        patience,
    };

    /// The pages with commands, in the order in which a reader gets to them.
    const PAGES: [&str; 13] = [
        "tutorial.md",
        "render.md",
        "how-to/use-several-stores.md",
        "how-to/upgrade-a-release.md",
        "how-to/cache-images.md",
        "how-to/control-imports.md",
        "how-to/isolate-the-network.md",
        "how-to/rotate-credentials.md",
        "how-to/register-a-target.md",
        "targets.md",
        "how-to/revoke-a-target.md",
        "clusters.md",
        "how-to/move-from-the-go-operator.md",
    ];

    /// Where the commands are typed: the checkout's folders, and room for files.
    struct Desk {
        folder: PathBuf,
        path: String,
        kubeconfigs: String,
    }

    impl Desk {
        fn set_up(fleet: &Fleet) -> Result<Self> {
            let folder = fleet.folder().path().join("desk");
            let tools = folder.join("bin");
            for component in [Component::Kubectl, Component::Helm] {
                fleet.assets().write(component, &tools)?;
            }
            symlink(binary()?, tools.join("glance-operator"))?;
            for name in ["charts", "docs"] {
                symlink(checkout().join(name), folder.join(name))?;
            }
            let files = fleet.members().iter().map(|m| m.cluster().kubeconfig());
            let files: Vec<_> = files.map(|file| file.display().to_string()).collect();
            Ok(Self {
                path: format!(
                    "{}:{}:{}",
                    tools.display(),
                    folder.join(".local/bin").display(),
                    std::env::var("PATH").unwrap_or_default()
                ),
                kubeconfigs: files.join(":"),
                folder,
            })
        }

        fn type_in(&self, script: &str) -> Result<()> {
            let output = Command::new("bash")
                .args(["-euxo", "pipefail", "-c", script])
                .current_dir(&self.folder)
                .env("PATH", &self.path)
                // What a page writes below `~` is gone with the test.
                .env("HOME", &self.folder)
                .env("KUBECONFIG", &self.kubeconfigs)
                .env("HELM_CACHE_HOME", self.folder.join("helm"))
                .env("HELM_CONFIG_HOME", self.folder.join("helm"))
                .env("HELM_DATA_HOME", self.folder.join("helm"))
                .output()?;
            ensure!(
                output.status.success(),
                "{}\n{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            Ok(())
        }
    }

    #[test]
    fn every_command_of_every_page_works() {
        let told = block_on(async {
            let fleet = Fleet::own(Shape {
                patience: patience::seconds(600),
                ..Shape::targets(2)
            })
            .await?;
            let outcome = follow(&fleet).await;
            if outcome.is_err() {
                fleet.folder().keep();
            }
            let folder = fleet.folder().path().display().to_string();
            outcome.map_err(|error| error.context(format!("the logs are kept in {folder}")))
        });
        if let Err(error) = told {
            panic!("{error:#}");
        }
    }

    async fn follow(fleet: &Fleet) -> Result<()> {
        let desk = Desk::set_up(fleet)?;
        let mut operator = None;
        for page in PAGES {
            for act in pages::read(&checkout().join("docs").join(page))? {
                match act {
                    Act::Script { line, text } => tokio::task::block_in_place(|| {
                        let typed = desk.type_in(&text);
                        typed.map_err(|error| error.context(format!("docs/{page}:{line}")))
                    })?,
                    Act::Hook(hook) if hook == "start the operator" => {
                        operator = Some(start(fleet).await?);
                    }
                    Act::Hook(hook) => bail!("docs/{page}: nobody knows how to {hook}"),
                }
            }
        }
        drop(operator);
        Ok(())
    }

    async fn start(fleet: &Fleet) -> Result<Running> {
        let folder = fleet.folder().path();
        let operator =
            Operator::deployed(fleet.hub(), "glance-system", "glance-operator", folder).await?;
        operator.start().await
    }

    #[test]
    fn no_page_is_forgotten() {
        let docs = checkout().join("docs");
        let mut with_commands = BTreeSet::new();
        for file in markdown(&docs) {
            if pages::read(&file)
                .unwrap()
                .iter()
                .any(|act| matches!(act, Act::Script { .. }))
            {
                let name = file.strip_prefix(&docs).unwrap();
                with_commands.insert(name.display().to_string());
            }
        }
        assert_eq!(with_commands, PAGES.map(str::to_owned).into());
    }

    #[test]
    fn every_link_leads_somewhere() {
        let mut files = markdown(&checkout().join("docs"));
        // Patterns of fields look like links.
        files.retain(|file| !file.starts_with(checkout().join("docs/reference")));
        for name in ["README.md", "CONTRIBUTING.md"] {
            files.push(checkout().join(name));
        }
        let mut dead = Vec::new();
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            for link in text.split("](").skip(1) {
                let link = link.split([')', '#']).next().unwrap_or_default();
                let place = file.parent().unwrap().join(link);
                if !link.is_empty() && !link.contains("://") && !place.exists() {
                    dead.push(format!("{}: {link}", file.display()));
                }
            }
        }
        assert!(dead.is_empty(), "{dead:#?}");
    }

    fn markdown(folder: &Path) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                files.extend(markdown(&path));
            } else if path.extension().is_some_and(|kind| kind == "md") {
                files.push(path);
            }
        }
        files.sort();
        files
    }
}
