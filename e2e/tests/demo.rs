//! `make demo` as a newcomer runs it: the whole of it, and in bad surroundings.

#[cfg(test)]
mod tests {
    use std::{
        net::TcpListener,
        path::Path,
        process::{Command, Output},
        time::{Duration, Instant},
    };

    use e2e::{doubles::glance_api, patience::seconds};

    fn demo(scratch: &Path, variables: &[(&str, &str)]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_demo"))
            .env("DEMO_ONCE", "1")
            .env("TMPDIR", scratch)
            .envs(variables.iter().copied())
            .output()
            .unwrap()
    }

    /// The one sentence with which a demo ends.
    fn sentence(output: &Output) -> String {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let text = String::from_utf8(output.stderr.clone()).unwrap();
        let mut lines = text.lines().filter(|line| !line.starts_with('['));
        let line = lines.next().unwrap_or_default().to_owned();
        assert_eq!(lines.next(), None, "{text}");
        line
    }

    /// Processes that name a folder in their command lines.
    fn running(folder: &Path) -> usize {
        let folder = folder.to_string_lossy().into_owned();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        entries
            .filter(|entry| {
                let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&line).contains(&folder)
            })
            .count()
    }

    #[test]
    fn it_shows_a_local_and_a_placed_glance_and_leaves_nothing() {
        // Another run on this machine may hold the port; the demo itself does not wait.
        let address = glance_api::machine_address().unwrap();
        let deadline = Instant::now() + seconds(600);
        while TcpListener::bind((address, glance_api::PORT)).is_err() {
            assert!(Instant::now() < deadline, "the port is never free");
            std::thread::sleep(Duration::from_millis(500));
        }
        let scratch = tempfile::tempdir().unwrap();
        let output = demo(scratch.path(), &[]);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
        let shown = String::from_utf8_lossy(&output.stdout);
        let row = |start: &str| {
            let line = shown.lines().find(|line| line.starts_with(start));
            let cells = line.unwrap_or_default().split("  ").map(str::trim);
            cells
                .filter(|cell| !cell.is_empty())
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            row("openstack/images ")[1..5],
            ["hub", "True", "2025.2", "2/2 ready"],
            "{shown}"
        );
        let placed = row("openstack/images-edge ");
        assert_eq!(
            placed[1..5],
            ["edge-1", "True", "2026.1", "2/2 ready"],
            "{shown}"
        );
        for (cluster, pods) in [("hub ", "2"), ("edge-1 ", "2"), ("edge-2 ", "0")] {
            assert_eq!(
                row(cluster).last().map(String::as_str),
                Some(pods),
                "{shown}"
            );
        }
        assert_eq!(running(scratch.path()), 0);
        let left: Vec<_> = std::fs::read_dir(scratch.path())
            .unwrap()
            .flatten()
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn without_go_it_says_where_go_is() {
        let scratch = tempfile::tempdir().unwrap();
        let cache = scratch.path().join("cache");
        let output = demo(
            scratch.path(),
            &[
                ("PATH", "/nowhere"),
                ("XDG_CACHE_HOME", &cache.to_string_lossy()),
                ("KUBEBUILDER_ASSETS", ""),
                ("E2E_PEER_ADDRESS", "127.0.0.2"),
            ],
        );
        let sentence = sentence(&output);
        assert!(sentence.starts_with("demo: Go was not found"), "{sentence}");
        assert!(sentence.contains("https://go.dev/dl"), "{sentence}");
    }

    #[test]
    fn with_the_port_taken_it_says_what_to_do() {
        let holder = TcpListener::bind(("127.0.0.3", glance_api::PORT)).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let output = demo(scratch.path(), &[("E2E_PEER_ADDRESS", "127.0.0.3")]);
        drop(holder);
        let sentence = sentence(&output);
        assert!(
            sentence.starts_with("demo: port 9292 on 127.0.0.3 is taken"),
            "{sentence}"
        );
        assert!(sentence.contains("E2E_PEER_ADDRESS"), "{sentence}");
    }
}
