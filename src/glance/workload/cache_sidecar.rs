//! The sidecar that keeps the image cache small: a shell loop around Glance's own two commands.
//!
//! Nothing but the pruner enforces the maximum of the cache, so the loop looks at the size more
//! often than at the clock. It absorbs every failure: it shares the pod with the API, and a pruner
//! that fails fails on all replicas at once.

use glance_api::defaults;
use glance_api::glance::{GlanceSpec, ImageCacheSpec};
use serde_json::{Value, json};

use super::containers::{image, restricted};
use super::volumes::{self, CACHE_DIR, CONFIG_DIR};
use crate::{duration, quantity};

/// Seconds between two looks at the size.
const POLL: i64 = 30;

/// The loop below the assignments.
///
/// The shell is the first process of its container, so without a trap it would ignore SIGTERM and
/// hold the pod for its whole grace period. The pause runs in the background because a trap waits
/// for a foreground command, but not for `wait`. The three directories left out hold entries that
/// the pruner cannot free for a day and that would keep the size trigger on.
const LOOP: &str = r#"elapsed=0
failures=0
running=yes
trap 'running=no' TERM
while [ "$running" = yes ]; do
  sleep "$poll" &
  wait "$!" || true
  [ "$running" = yes ] || break
  elapsed=$((elapsed + poll))
  used_kib=$(du -sk --exclude=incomplete --exclude=invalid --exclude=queue "$dir" | cut -f1)
  if [ -z "$used_kib" ]; then
    echo "glance-cache-maintenance unmeasured: could not measure $dir; running a pass anyway" >&2
    used_kib=$high_water_kib
  fi
  if [ "$elapsed" -lt "$interval" ] && [ "$used_kib" -lt "$high_water_kib" ]; then
    continue
  fi
  elapsed=0
  failed=no
  glance-cache-pruner --config-dir "$conf" || failed=yes
  glance-cache-cleaner --config-dir "$conf" || failed=yes
  if [ "$failed" = yes ]; then
    failures=$((failures + 1))
    echo "glance-cache-maintenance failed: $failures consecutive, cache at $used_kib KiB of $high_water_kib" >&2
  elif [ "$failures" -gt 0 ]; then
    echo "glance-cache-maintenance recovered: after $failures consecutive failures" >&2
    failures=0
  fi
done
"#;

/// The sidecar, when the cache is on.
pub fn container(spec: &GlanceSpec) -> Option<Value> {
    let cache = spec.image_cache.as_ref()?;
    Some(json!({
        "name": "cache-maintenance",
        "image": image(&spec.image),
        "command": ["/bin/sh", "-eu", "-c", script(cache)],
        // Without a CPU request on every container the autoscaler has no figure for the pod.
        "resources": {
            "requests": { "cpu": "25m", "memory": "64Mi" },
            "limits": { "memory": "256Mi" },
        },
        "volumeMounts": [volumes::config_mount(), volumes::cache_mount()],
        "securityContext": restricted(),
    }))
}

/// The script: assignments that outside checks read, then the loop.
fn script(cache: &ImageCacheSpec) -> String {
    format!(
        "interval={}\npoll={POLL}\nhigh_water_kib={}\ndir={CACHE_DIR}\nconf={CONFIG_DIR}\n{LOOP}",
        interval(cache),
        high_water_kib(cache),
    )
}

/// Seconds between two passes when the size gives no reason for one.
///
/// A text that is no duration never passed admission; the default then.
fn interval(cache: &ImageCacheSpec) -> i64 {
    [
        defaults::maintenance_interval(cache),
        defaults::MAINTENANCE_INTERVAL,
    ]
    .into_iter()
    .filter_map(|text| duration::seconds(text).ok())
    .find(|seconds| *seconds > 0)
    .unwrap_or(POLL)
}

/// The maximum that the config renders as `image_cache_max_size`, in KiB as `du` counts.
fn high_water_kib(cache: &ImageCacheSpec) -> i64 {
    let limit = defaults::image_cache_size_limit(cache);
    quantity::cache_max_bytes(quantity::bytes(limit.as_str()).unwrap_or_default()) / 1024
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use rstest::rstest;
    use tempfile::TempDir;

    use super::*;
    use crate::glance::specimen;

    fn script_of(cache: &Value) -> String {
        let spec = specimen::with(&json!({ "imageCache": cache })).spec;
        let container = container(&spec).unwrap();
        let command = container["command"].as_array().unwrap();
        assert_eq!(command[..3], ["/bin/sh", "-eu", "-c"]);
        command[3].as_str().unwrap().to_owned()
    }

    #[test]
    fn without_a_cache_there_is_no_sidecar() {
        assert_eq!(container(&specimen::eventlet().spec), None);
    }

    #[rstest]
    #[case::empty(json!({}), 300, 8_388_608)]
    #[case::small(json!({ "sizeLimit": "256Mi", "maintenanceInterval": "1m" }), 60, 209_715)]
    #[case::go_duration(json!({ "maintenanceInterval": "1h30m0.9s" }), 5400, 8_388_608)]
    #[case::decimal(json!({ "sizeLimit": "1G" }), 300, 781_250)]
    #[case::bypassed(json!({ "maintenanceInterval": "soon" }), 300, 8_388_608)]
    fn the_header_is_read_by_others(
        #[case] cache: Value,
        #[case] interval: i64,
        #[case] high_water: i64,
    ) {
        let script = script_of(&cache);
        let header: Vec<&str> = script.lines().take(5).collect();
        assert_eq!(
            header,
            [
                format!("interval={interval}").as_str(),
                "poll=30",
                &format!("high_water_kib={high_water}"),
                "dir=/var/lib/glance/image-cache",
                "conf=/etc/glance/glance-api.conf.d/",
            ]
        );
    }

    #[test]
    fn the_script_is_one_a_pod_can_run() {
        let script = script_of(&json!({}));
        assert!(!script.contains("exit "));
        assert!(!script.contains("/dev/null"));
        // Kubernetes would turn it into one.
        assert!(!script.contains("$$"));
        let checked = Command::new("sh")
            .args(["-n", "-c", &script])
            .status()
            .unwrap();
        assert!(checked.success());
    }

    /// A directory with stand-ins for the commands, and the script in a hurry.
    struct Bench {
        dir: TempDir,
        script: String,
    }

    impl Bench {
        /// `interval` and `high_water` replace those of the header; the pause becomes a tenth of a second that
        /// counts as 30.
        fn new(interval: i64, high_water: i64) -> Self {
            let dir = TempDir::new().unwrap();
            let script = script_of(&json!({}))
                .replace("interval=300", &format!("interval={interval}"))
                .replace(
                    "high_water_kib=8388608",
                    &format!("high_water_kib={high_water}"),
                );
            let bench = Self { dir, script };
            bench.command("sleep", "exec /bin/sleep 0.05");
            bench.command(
                "glance-cache-pruner",
                "echo \"pruner $*\" >> $LOG; test ! -e $BROKEN",
            );
            bench.command("glance-cache-cleaner", "echo \"cleaner $*\" >> $LOG");
            bench.used("10");
            bench
        }

        fn command(&self, name: &str, body: &str) {
            // Renamed into place: the loop may be about to run the former one.
            let path = self.dir.path().join("new");
            let head = format!(
                "#!/bin/sh\nLOG={0}/log\nBROKEN={0}/broken\n",
                self.dir.path().display()
            );
            fs::write(&path, format!("{head}{body}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            fs::rename(path, self.dir.path().join(name)).unwrap();
        }

        /// What `du` says; nothing when empty.
        fn used(&self, kib: &str) {
            let print = if kib.is_empty() {
                "false".to_owned()
            } else {
                format!("printf '{kib}\\t%s\\n' \"$5\"")
            };
            self.command("du", &format!("echo \"du $*\" >> $LOG.du\n{print}"));
        }

        fn broken(&self, broken: bool) {
            let path = self.dir.path().join("broken");
            if broken {
                fs::write(path, "").unwrap();
            } else {
                fs::remove_file(path).unwrap();
            }
        }

        fn start(&self) -> Running<'_> {
            let path = format!(
                "{}:{}",
                self.dir.path().display(),
                std::env::var("PATH").unwrap()
            );
            let stderr = fs::File::create(self.dir.path().join("stderr")).unwrap();
            let child = Command::new("sh")
                .args(["-eu", "-c", &self.script])
                .env("PATH", path)
                .stdout(Stdio::null())
                .stderr(stderr)
                .spawn()
                .unwrap();
            Running { bench: self, child }
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
        }

        fn log(&self) -> String {
            self.read("log")
        }
    }

    /// The running script; stopped when dropped.
    struct Running<'a> {
        bench: &'a Bench,
        child: std::process::Child,
    }

    impl Running<'_> {
        fn until(&self, file: &str, holds: impl Fn(&str) -> bool) -> String {
            let end = Instant::now() + Duration::from_secs(20);
            loop {
                let text = self.bench.read(file);
                if holds(&text) {
                    return text;
                }
                assert!(Instant::now() < end, "{file} stayed at: {text}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }

        fn terminate(&mut self) -> std::process::ExitStatus {
            let pid = self.child.id().to_string();
            assert!(
                Command::new("kill")
                    .args(["-TERM", &pid])
                    .status()
                    .unwrap()
                    .success()
            );
            let end = Instant::now() + Duration::from_secs(20);
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status;
                }
                assert!(Instant::now() < end, "still there");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    impl Drop for Running<'_> {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    #[test]
    fn a_full_cache_is_pruned_long_before_the_clock() {
        let bench = Bench::new(1_000_000, 100);
        let running = bench.start();
        running.until("log.du", |log| log.lines().count() > 3);
        assert_eq!(bench.log(), "", "below high water and before the interval");
        bench.used("100");
        let log = running.until("log", |log| log.lines().count() >= 2);
        let conf = "--config-dir /etc/glance/glance-api.conf.d/";
        assert!(
            log.starts_with(&format!("pruner {conf}\ncleaner {conf}\n")),
            "{log}"
        );
        assert!(bench.read("log.du").starts_with(
            "du -sk --exclude=incomplete --exclude=invalid --exclude=queue /var/lib/glance/image-cache\n"
        ));
        assert_eq!(bench.read("stderr"), "", "success is silent");
    }

    #[test]
    fn the_clock_prunes_a_cache_that_is_not_full() {
        let bench = Bench::new(90, 1_000_000);
        let running = bench.start();
        running.until("log", |log| !log.is_empty());
        assert!(
            bench.read("log.du").lines().count() >= 3,
            "three pauses make the interval"
        );
    }

    #[test]
    fn failures_are_counted_and_absorbed_until_they_end() {
        let bench = Bench::new(30, 100);
        bench.broken(true);
        let mut running = bench.start();
        let said = running.until("stderr", |said| said.lines().count() >= 2);
        assert!(
            said.starts_with(
                "glance-cache-maintenance failed: 1 consecutive, cache at 10 KiB of 100\n\
             glance-cache-maintenance failed: 2 consecutive, cache at 10 KiB of 100\n"
            ),
            "{said}"
        );
        assert!(
            bench.log().contains("cleaner"),
            "the second runs although the first failed"
        );
        bench.broken(false);
        let said = running.until("stderr", |said| said.contains("recovered"));
        let failures = said.lines().count() - 1;
        assert!(
            said.ends_with(&format!(
                "glance-cache-maintenance recovered: after {failures} consecutive failures\n"
            )),
            "{said}"
        );
        assert!(running.child.try_wait().unwrap().is_none());
    }

    #[test]
    fn a_cache_that_cannot_be_measured_is_pruned_and_said() {
        let bench = Bench::new(1_000_000, 100);
        bench.used("");
        let running = bench.start();
        running.until("log", |log| !log.is_empty());
        assert!(bench.read("stderr").starts_with(
            "glance-cache-maintenance unmeasured: could not measure /var/lib/glance/image-cache; running a pass anyway\n"
        ));
    }

    #[test]
    fn sigterm_ends_the_pause_at_once() {
        let bench = Bench::new(300, 100);
        bench.command("sleep", "echo asleep >> $LOG.sleep\nexec /bin/sleep 5");
        let mut running = bench.start();
        running.until("log.sleep", |log| !log.is_empty());
        let asked = Instant::now();
        assert!(running.terminate().success());
        assert!(
            asked.elapsed() < Duration::from_secs(4),
            "it waited for the pause"
        );
        assert_eq!(bench.log(), "", "nothing is started any more");
    }
}
