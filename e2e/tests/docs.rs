//! The documentation, typed by somebody who follows it word by word: every command of every page runs on a fleet, one page
//! after the other.

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
        path::{Path, PathBuf},
        process::Command,
    };

    use anyhow::{Context as _, Result, bail, ensure};
    use e2e::{
        assets::{Component, Neighbour},
        bed::block_on,
        checkout,
        expect::eventually,
        fleet::{Fleet, Shape},
        operator::{Operator, Running, binary},
        pages::{self, Act},
        patience,
        process::{Plan, Process},
    };

    /// The pages with commands below `docs/`, in the order in which a reader gets to them.
    const PAGES: [&str; 13] = [
        "docs/tutorial.md",
        "docs/render.md",
        "docs/how-to/use-several-stores.md",
        "docs/how-to/upgrade-a-release.md",
        "docs/how-to/cache-images.md",
        "docs/how-to/control-imports.md",
        "docs/how-to/isolate-the-network.md",
        "docs/how-to/rotate-credentials.md",
        "docs/how-to/register-a-target.md",
        "docs/targets.md",
        "docs/how-to/revoke-a-target.md",
        "docs/clusters.md",
        "docs/how-to/move-from-the-go-operator.md",
    ];

    /// The pages beside the code. The first are installations of their own, taken back before the next.
    const READMES: [&str; 5] = [
        "charts/target-cluster-access/README.md",
        "charts/glance-operator/README.md",
        "README.md",
        "registry/README.md",
        "CONTRIBUTING.md",
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
            // What it would build is built: whoever types something else does not get it.
            let install = format!(
                "#!/bin/sh\n[ \"$*\" = 'install --locked --path .' ] || exit 1\n\
                 mkdir -p ~/.cargo/bin && ln -sf '{}' ~/.cargo/bin/glance-operator\n",
                binary()?.display()
            );
            let cargo = tools.join("cargo");
            fs::write(&cargo, install)?;
            fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755))?;
            for name in ["charts", "docs"] {
                symlink(checkout().join(name), folder.join(name))?;
            }
            Ok(Self {
                path: format!(
                    "{}:{}:{}:{}",
                    tools.display(),
                    folder.join(".cargo/bin").display(),
                    folder.join(".local/bin").display(),
                    std::env::var("PATH").unwrap_or_default()
                ),
                kubeconfigs: kubeconfigs(fleet),
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

    /// Of an administrator of all clusters; the hub is the current one.
    fn kubeconfigs(fleet: &Fleet) -> String {
        let files = fleet.members().iter().map(|m| m.cluster().kubeconfig());
        let files: Vec<_> = files.map(|file| file.display().to_string()).collect();
        files.join(":")
    }

    #[test]
    fn every_command_of_every_page_works() {
        on_a_fleet(2, &PAGES);
    }

    #[test]
    fn every_command_of_the_readmes_and_of_contributing_works_or_is_run_elsewhere() {
        on_a_fleet(1, &READMES);
    }

    fn on_a_fleet(targets: usize, pages: &[&str]) {
        let told = block_on(async {
            // One fleet at a time: they would share a port.
            let fleet = Fleet::own(Shape {
                patience: patience::seconds(900),
                ..Shape::targets(targets)
            })
            .await?;
            let outcome = Reader::new(&fleet)?.follow(pages).await;
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

    /// Who follows the pages, and what runs meanwhile.
    struct Reader<'f> {
        fleet: &'f Fleet,
        desk: Desk,
        operator: Option<Running>,
    }

    impl<'f> Reader<'f> {
        fn new(fleet: &'f Fleet) -> Result<Self> {
            Ok(Self {
                fleet,
                desk: Desk::set_up(fleet)?,
                operator: None,
            })
        }

        async fn follow(mut self, pages: &[&str]) -> Result<()> {
            for page in pages {
                for act in pages::read(&checkout().join(page))? {
                    match act {
                        Act::Script { line, text } => {
                            self.type_in(&text)
                                .with_context(|| format!("{page}:{line}"))?;
                        }
                        Act::Hook(hook) => {
                            let done = self.hook(&hook).await;
                            done.with_context(|| format!("{page}: {hook}"))?;
                        }
                        Act::Covered { line, by } => {
                            for file in by {
                                let exists = checkout().join(&file).is_file();
                                ensure!(exists, "{page}:{line}: there is no {file}");
                            }
                        }
                    }
                }
            }
            Ok(())
        }

        fn type_in(&self, script: &str) -> Result<()> {
            tokio::task::block_in_place(|| self.desk.type_in(script))
        }

        async fn hook(&mut self, hook: &str) -> Result<()> {
            let hub = self.fleet.hub();
            match hook {
                "start the operator" => self.start().await,
                "install the definitions of cert-manager" => {
                    let definitions = tokio::task::spawn_blocking(|| Neighbour::CertManager.crds());
                    hub.install(&definitions.await??).await
                }
                "be the owner of edge-1" => {
                    let own = self.fleet.cluster("edge-1")?.kubeconfig();
                    self.desk.kubeconfigs = own.display().to_string();
                    Ok(())
                }
                "take the access back" => {
                    self.type_in(
                        "helm uninstall edge --namespace c5c3-access --wait
                        kubectl delete namespace c5c3-access openstack",
                    )?;
                    self.desk.kubeconfigs = kubeconfigs(self.fleet);
                    Ok(())
                }
                "take the installation back" => self.type_in(
                    "helm uninstall glance-operator --namespace glance-system --wait
                    kubectl delete namespace c5c3-clusters",
                ),
                "have releases of the Go operator's charts" => {
                    self.operator = None;
                    self.releases_of_go()
                }
                "have a kubeconfig blue.yaml" => {
                    let edge = self.fleet.cluster("edge-1")?.kubeconfig();
                    fs::copy(edge, self.desk.folder.join("blue.yaml"))?;
                    self.type_in("kubectl create namespace clusters")
                }
                "run the examples" => {
                    for (example, words) in
                        [("fleet", "Connected"), ("config_maps", "kube-root-ca.crt")]
                    {
                        self.example(example, words).await?;
                    }
                    Ok(())
                }
                _ => bail!("nobody knows how"),
            }
        }

        /// Charts of which only the values matter: Helm keeps them, and what was set, in the release.
        fn releases_of_go(&self) -> Result<()> {
            for (chart, values) in [
                (
                    "glance-operator",
                    "{image: {repository: go, tag: '', digest: ''}, replicas: 2, webhook: {enabled: true}}",
                ),
                (
                    "target-cluster-access",
                    "{namespaces: [], createNamespaces: true, serviceAccount: {name: target-cluster-access}}",
                ),
            ] {
                let folder = self.desk.folder.join("go").join(chart);
                fs::create_dir_all(folder.join("templates"))?;
                let about = format!("{{apiVersion: v2, name: {chart}, version: 0.1.3}}");
                fs::write(folder.join("Chart.yaml"), about)?;
                fs::write(folder.join("values.yaml"), values)?;
            }
            self.type_in(
                "helm --kube-context hub uninstall glance-operator --namespace glance-system --ignore-not-found --wait
                kubectl --context edge-2 delete namespace c5c3-access --ignore-not-found
                helm --kube-context hub install glance-operator go/glance-operator --namespace glance-system \\
                    --create-namespace --set image.repository=go,image.tag=v1,replicas=3,webhook.enabled=false
                helm --kube-context edge-2 install edge go/target-cluster-access --namespace c5c3-access \\
                    --create-namespace --set 'namespaces={images}'
                ! helm --kube-context hub upgrade glance-operator charts/glance-operator \\
                    --namespace glance-system --reuse-values",
            )
        }

        /// An example of the registry prints what it has seen of the cluster `blue`.
        async fn example(&self, name: &str, words: &str) -> Result<()> {
            let exe = std::env::current_exe()?;
            let profile = exe.parent().and_then(Path::parent).context("no folder")?;
            let log = self.desk.folder.join(format!("{name}.log"));
            let _running = Process::start(&Plan {
                name: "example",
                program: &profile.join("examples").join(name),
                args: &["clusters".to_owned()],
                env: &[("KUBECONFIG".to_owned(), self.desk.kubeconfigs.clone())],
                folder: &self.desk.folder,
                log: &log,
            })?;
            eventually(patience::seconds(30), "it to print", async || {
                let printed = fs::read_to_string(&log)?;
                let line = printed
                    .lines()
                    .find(|line| line.contains("blue") && line.contains(words));
                line.map(|_| ()).with_context(|| printed.clone())
            })
            .await
        }

        /// As its Deployment has it. Nothing is behind the Service of its webhooks here, so they are taken away.
        async fn start(&mut self) -> Result<()> {
            self.type_in(
                "kubectl delete --ignore-not-found validatingwebhookconfiguration/glance-operator-validating \\
                mutatingwebhookconfiguration/glance-operator-mutating",
            )?;
            let folder = self.fleet.folder().path();
            let installed = ("glance-system", "glance-operator");
            let operator =
                Operator::deployed(self.fleet.hub(), installed.0, installed.1, folder).await?;
            self.operator = Some(operator.arg("--enable-webhooks=false").start().await?);
            Ok(())
        }
    }

    #[test]
    fn no_page_is_forgotten() {
        let mut with_commands = BTreeSet::new();
        for page in pages() {
            let acts = pages::read(&checkout().join(&page)).unwrap();
            let is_run = |act: &Act| matches!(act, Act::Script { .. } | Act::Covered { .. });
            if acts.iter().any(is_run) {
                with_commands.insert(page);
            }
        }
        let typed = PAGES.iter().chain(&READMES).map(|page| (*page).to_owned());
        assert_eq!(with_commands, typed.collect());
    }

    #[test]
    fn every_link_leads_somewhere() {
        let mut dead = Vec::new();
        // Patterns of fields look like links.
        for page in pages()
            .iter()
            .filter(|page| !page.starts_with("docs/reference"))
        {
            let file = checkout().join(page);
            let text = fs::read_to_string(&file).unwrap();
            for link in text.split("](").skip(1) {
                let link = link.split([')', '#']).next().unwrap_or_default();
                let place = file.parent().unwrap().join(link);
                if !link.is_empty() && !link.contains("://") && !place.exists() {
                    dead.push(format!("{page}: {link}"));
                }
            }
        }
        assert!(dead.is_empty(), "{dead:#?}");
    }

    /// Those who type `make demo`, in a sentence or in a block, find it.
    #[test]
    fn every_target_of_make_and_every_stage_that_a_page_names_is_there() {
        let makefile = fs::read_to_string(checkout().join("Makefile")).unwrap();
        let script = fs::read_to_string(checkout().join(".ci/run")).unwrap();
        let word = |text: &str| -> String {
            let letters = text
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '-');
            letters.collect()
        };
        let mut found = 0;
        let mut missing = Vec::new();
        for page in pages() {
            let text = fs::read_to_string(checkout().join(&page)).unwrap();
            for mark in ["`make ", "$ make "] {
                for rest in text.split(mark).skip(1) {
                    found += 1;
                    let target = word(rest);
                    if !makefile.contains(&format!("\n{target}: ##")) {
                        missing.push(format!("{page}: make {target}"));
                    }
                }
            }
            for rest in text.split("`.ci/run ").skip(1) {
                for stage in rest.split('`').next().unwrap_or_default().split(' ') {
                    found += 1;
                    if stage != "check" && !script.contains(&format!("[{}]=", word(stage))) {
                        missing.push(format!("{page}: .ci/run {stage}"));
                    }
                }
            }
        }
        assert!(missing.is_empty(), "{missing:#?}");
        assert!(found > 15, "only {found} were seen");
    }

    /// Every page of the repository, from the top of the checkout.
    fn pages() -> BTreeSet<String> {
        let top = checkout();
        let mut files = Vec::new();
        for folder in ["docs", "charts", "registry", "crds", "src", "e2e", ".ci"] {
            files.extend(markdown(&top.join(folder)));
        }
        for entry in fs::read_dir(top).unwrap().flatten() {
            files.push(entry.path());
        }
        files.retain(|file| file.extension().is_some_and(|kind| kind == "md"));
        let name = |file: &PathBuf| file.strip_prefix(top).unwrap().display().to_string();
        files.iter().map(name).collect()
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
        files
    }
}
