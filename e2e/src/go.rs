//! Go as a source of programs and files: builds a binary of one of our modules once per
//! machine, into a cache folder outside the checkout, and finds the folder of a published
//! module. Go's own build cache makes the second build of a changed module quick.

use std::{
    env,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Instant,
};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::progress::Progress;

/// A binary to be had.
#[derive(Debug, Clone, Copy)]
pub struct Build<'a> {
    /// Its file name, to which a fingerprint of the module is added.
    pub name: &'a str,
    /// What it is, for people, with the time that a cold build takes.
    pub what: &'a str,
    /// The folder with `go.mod`.
    pub module: &'a Path,
    /// The package, seen from there.
    pub package: &'a str,
    /// Flags for the linker.
    pub ldflags: &'a str,
    /// The version of Go when it has to be another than the newest.
    pub toolchain: Option<&'a str>,
    /// Free space that a cold build needs, in bytes.
    pub space: u64,
}

/// Why a program or a module cannot be had. Each text is one sentence with the way out.
#[derive(Debug, Error)]
pub enum Error {
    /// No `go` on the path.
    #[error(
        "Go was not found on the PATH, and the test bed builds its Kubernetes with it: install Go \
         1.26 or newer from https://go.dev/dl and try again"
    )]
    NoGo,
    /// The `go` on the path is too old for the module.
    #[error(
        "the Go on the PATH is too old ({0}): install a newer one from https://go.dev/dl and try again"
    )]
    OldGo(String),
    /// The disk is full, or would be.
    #[error(
        "{} has {} MiB free and the build needs {} MiB: free some space, or point XDG_CACHE_HOME and \
         GOCACHE to a larger disk",
        .path.display(), .free >> 20, .needed >> 20
    )]
    NoSpace {
        /// The folder in question.
        path: PathBuf,
        /// Bytes free.
        free: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// Neither `XDG_CACHE_HOME` nor `HOME` is set.
    #[error(
        "there is no folder for what Go builds: set XDG_CACHE_HOME to a folder that you may write to"
    )]
    NoCache,
    /// A module could not be fetched.
    #[error("Go could not fetch {module} ({cause}): check the network and GOPROXY, then try again")]
    Download {
        /// `path@version`.
        module: String,
        /// Go's own words.
        cause: String,
    },
    /// The build failed for another reason.
    #[error("Go could not build {module} ({cause}): run `go build ./...` there to see all of it")]
    Build {
        /// The module's folder.
        module: String,
        /// The last line of what Go printed.
        cause: String,
    },
    /// A file of the cache or the module could not be used.
    #[error("{} cannot be used ({cause}): make it accessible for this user and try again", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        cause: io::Error,
    },
}

/// What `go mod download -json` says about one module.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Download {
    #[serde(default)]
    dir: PathBuf,
    #[serde(default)]
    error: String,
}

/// The path of the binary, built first if the cache does not have it for this state of the
/// module.
pub fn build(build: &Build<'_>, progress: &Progress) -> Result<PathBuf, Error> {
    let cache = cache_folder()?;
    let binary = cache.join(format!("{}-{}", build.name, fingerprint(build.module)?));
    if !binary.is_file() {
        fs::create_dir_all(&cache).map_err(|e| file(&cache, e))?;
        build_once(build, &cache, &binary, progress)?;
    }
    Ok(binary)
}

/// The folder of a published module in Go's module cache, downloaded if it is not there.
/// `from` is any folder with a `go.mod`.
pub fn download(from: &Path, module: &str) -> Result<PathBuf, Error> {
    let output = run(go(env::var_os("GOTOOLCHAIN"))
        .current_dir(from)
        .args(["mod", "download", "-json", module]))?;
    let answer: Result<Download, _> = serde_json::from_slice(&output.stdout);
    let cause = match answer {
        Ok(found) if found.error.is_empty() && output.status.success() => return Ok(found.dir),
        Ok(found) => found.error,
        Err(_) => String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    if cause.contains("requires go >= ") {
        return Err(Error::OldGo(one_line(&cause)));
    }
    Err(Error::Download {
        module: module.to_owned(),
        cause: one_line(&cause),
    })
}

/// Go, which fetches the version that a module asks for unless the user wants otherwise: packages of distributions come
/// with a `go.env` that says `GOTOOLCHAIN=local`, and an older Go would stop there.
fn go(wanted: Option<OsString>) -> Command {
    let mut command = Command::new("go");
    if wanted.is_none_or(|wanted| wanted.is_empty()) {
        command.env("GOTOOLCHAIN", "auto");
    }
    command
}

/// The folder for everything that is built once per machine.
pub(crate) fn cache_folder() -> Result<PathBuf, Error> {
    let absolute = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|folder| folder.join("glance-operator"))
        .ok_or(Error::NoCache)
}

/// Twelve hex digits over what a binary of the module is made of.
fn fingerprint(module: &Path) -> Result<String, Error> {
    let mut hash = Sha256::new();
    for name in ["go.mod", "go.sum", "main.go"] {
        let path = module.join(name);
        // A module of tools only has no program of its own.
        if name != "main.go" || path.exists() {
            hash.update(fs::read(&path).map_err(|e| file(&path, e))?);
        }
        hash.update([0]);
    }
    Ok(data_encoding::HEXLOWER.encode(&hash.finalize()[..6]))
}

/// Builds under a lock, so that of two runs that start together one waits.
fn build_once(
    build: &Build<'_>,
    cache: &Path,
    binary: &Path,
    progress: &Progress,
) -> Result<(), Error> {
    let path = cache.join(format!("{}.lock", build.name));
    let lock = fs::File::create(&path).map_err(|e| file(&path, e))?;
    if lock.try_lock().is_err() {
        progress.say(format_args!(
            "another run is building {}, waiting for it",
            build.name
        ));
        lock.lock().map_err(|e| file(&path, e))?;
    }
    if binary.is_file() {
        return Ok(());
    }
    check_space(build, cache)?;
    let started = Instant::now();
    progress.say(format_args!("building {}, once per machine", build.what));
    // Built beside its final name: an interrupted build must not look finished.
    let partial = binary.with_extension("partial");
    let mut command = go(env::var_os("GOTOOLCHAIN"));
    command
        .current_dir(build.module)
        .args([
            "build",
            "-trimpath",
            "-buildvcs=false",
            "-ldflags",
            build.ldflags,
            "-o",
        ])
        .arg(&partial)
        .arg(build.package);
    if let Some(toolchain) = build.toolchain {
        command.env("GOTOOLCHAIN", toolchain);
    }
    let output = run(&mut command)?;
    if !output.status.success() {
        return Err(build_error(build, cache, &output));
    }
    fs::rename(&partial, binary).map_err(|e| file(binary, e))?;
    let seconds = started.elapsed().as_secs_f64();
    progress.say(format_args!("built {} in {seconds:.0} s", binary.display()));
    Ok(())
}

/// Refuses to start a build that would fill the disk. When the cache holds an older binary,
/// Go's cache is warm and the build needs far less.
fn check_space(build: &Build<'_>, cache: &Path) -> Result<(), Error> {
    let warm = fs::read_dir(cache).is_ok_and(|entries| {
        entries.flatten().any(|e| {
            let path = e.path();
            path.extension().is_none_or(|x| x != "lock")
                && e.file_name().to_string_lossy().starts_with(build.name)
        })
    });
    let needed = if warm { build.space / 8 } else { build.space };
    let free = free_space(cache)?;
    if free < needed {
        return Err(Error::NoSpace {
            path: cache.to_owned(),
            free,
            needed,
        });
    }
    Ok(())
}

/// Bytes that this user may still write below `path`.
fn free_space(path: &Path) -> Result<u64, Error> {
    let stat = rustix::fs::statvfs(path).map_err(|e| file(path, e.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Runs Go and turns its absence into the sentence for it.
fn run(command: &mut Command) -> Result<Output, Error> {
    command.output().map_err(|cause| match cause.kind() {
        io::ErrorKind::NotFound => Error::NoGo,
        _ => file(Path::new("go"), cause),
    })
}

/// Reads the reason out of what Go printed.
fn build_error(build: &Build<'_>, cache: &Path, output: &Output) -> Error {
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("no space left on device") {
        let free = free_space(cache).unwrap_or_default();
        return Error::NoSpace {
            path: cache.to_owned(),
            free,
            needed: build.space,
        };
    }
    if let Some(line) = text.lines().find(|line| line.contains("requires go >= ")) {
        return Error::OldGo(line.trim().to_owned());
    }
    let network = |line: &&str| line.contains("dial tcp") || line.contains("proxyconnect");
    if let Some(line) = text.lines().find(network) {
        return Error::Download {
            module: "a module".to_owned(),
            cause: one_line(line),
        };
    }
    let cause = one_line(text.lines().last().unwrap_or("it did not say why"));
    Error::Build {
        module: build.module.display().to_string(),
        cause,
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(crate) fn file(path: &Path, cause: io::Error) -> Error {
    Error::File {
        path: path.to_owned(),
        cause,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _};

    use super::*;

    fn failed(stderr: &str) -> Error {
        let output = Output {
            status: std::process::ExitStatus::from_raw(256),
            stdout: Vec::new(),
            stderr: stderr.as_bytes().to_vec(),
        };
        let build = Build {
            name: "x",
            what: "x",
            module: Path::new("/"),
            package: ".",
            ldflags: "",
            toolchain: None,
            space: 1 << 40,
        };
        build_error(&build, Path::new("/"), &output)
    }

    #[test]
    fn a_failed_build_names_its_cause_in_one_sentence() {
        let disk = failed("# net/http\nwrite /tmp/x.a: no space left on device\n");
        assert!(matches!(disk, Error::NoSpace { .. }), "{disk}");
        let old = failed("go: go.mod requires go >= 1.26.0 (running go 1.22.1; GOTOOLCHAIN=local)");
        assert!(matches!(old, Error::OldGo(_)), "{old}");
        let offline = failed("go: k8s.io/api@v0.36.3: Get \"x\": dial tcp: lookup proxy: no host");
        assert!(matches!(offline, Error::Download { .. }), "{offline}");
        let other = failed("main.go:3:1: syntax error");
        for error in [disk, old, offline, other] {
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_build_that_would_fill_the_disk_is_not_begun() {
        let cache = tempfile::tempdir().unwrap();
        let build = Build {
            name: "x",
            what: "x",
            module: Path::new("/"),
            package: ".",
            ldflags: "",
            toolchain: None,
            space: u64::MAX,
        };
        let full = check_space(&build, cache.path()).unwrap_err();
        assert!(matches!(full, Error::NoSpace { .. }), "{full}");
    }

    /// What the Go of a distribution says in a module that wants a newer one.
    const OLD_GO: &str = "#!/bin/sh
[ \"${GOTOOLCHAIN:-local}\" = auto ] && { echo built; exit; }
echo 'go: go.mod requires go >= 1.26.0 (running go 1.24.4; GOTOOLCHAIN=local)' >&2
exit 1
";

    #[test]
    fn an_older_go_fetches_the_version_it_needs_unless_the_user_wants_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let stub = folder.path().join("go");
        fs::write(&stub, OLD_GO).unwrap();
        fs::set_permissions(&stub, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        let works =
            |command: &mut Command| run(command.env("PATH", &path)).unwrap().status.success();
        assert!(works(&mut go(None)));
        assert!(works(&mut go(Some("".into()))));
        // As the variable would have been inherited.
        assert!(!works(go(Some("local".into())).env("GOTOOLCHAIN", "local")));
    }

    #[test]
    fn what_make_runs_may_fetch_a_newer_go_too() {
        let toolchain = |wanted: &[(&str, &str)]| {
            let output = Command::new("make")
                .args([
                    "--no-print-directory",
                    "--eval",
                    "toolchain: ; @echo $$GOTOOLCHAIN",
                    "toolchain",
                ])
                .current_dir(crate::checkout())
                .env_remove("GOTOOLCHAIN")
                .envs(wanted.iter().copied())
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        assert_eq!(toolchain(&[]), "auto");
        assert_eq!(toolchain(&[("GOTOOLCHAIN", "local")]), "local");
    }

    #[test]
    fn the_fingerprint_follows_the_module() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["go.mod", "go.sum"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let before = fingerprint(folder.path()).unwrap();
        assert_eq!(before, fingerprint(folder.path()).unwrap());
        fs::write(folder.path().join("main.go"), "package main").unwrap();
        assert_ne!(before, fingerprint(folder.path()).unwrap());
    }
}
