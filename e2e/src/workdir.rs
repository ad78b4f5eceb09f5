//! The folder of one fleet: data, keys and logs. It goes when the fleet goes, unless
//! something failed; then it stays and its path is printed.

use std::{
    fs, io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// A folder with a janitor: a shell that waits for the end of this process, however that
/// comes, and then removes the folder unless the file `keep` is in it.
#[derive(Debug)]
pub struct Workdir {
    path: PathBuf,
    janitor: Child,
}

/// The pause lets the children of the fleet, which die by the same signal, close their files.
const JANITOR: &str = r#"cat >/dev/null
for i in 1 2 3 4 5; do
  sleep 1
  [ -e "$1/keep" ] && exit 0
  rm -rf "$1" 2>/dev/null && exit 0
done"#;

// === impl Workdir ===

impl Workdir {
    /// Makes a folder below the system's folder for temporary files.
    pub fn create() -> io::Result<Self> {
        let path = tempfile::Builder::new()
            .prefix("glance-operator-e2e-")
            .tempdir()?
            .keep();
        let janitor = Command::new("/bin/sh")
            .args(["-c", JANITOR, "janitor"])
            .arg(&path)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A Ctrl-C at the terminal is for us, the janitor follows.
            .process_group(0)
            .spawn()?;
        Ok(Self { path, janitor })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the folder beyond the end of this process.
    pub fn keep(&self) {
        let _ = fs::write(self.path.join("keep"), "");
    }

    /// Whether the folder is kept.
    pub fn kept(&self) -> bool {
        self.path.join("keep").exists()
    }
}

impl Drop for Workdir {
    fn drop(&mut self) {
        if !self.kept() {
            let _ = fs::remove_dir_all(&self.path);
        }
        // Without its pipe the janitor ends, and finds nothing left to do.
        self.janitor.stdin = None;
        let _ = self.janitor.wait();
    }
}
