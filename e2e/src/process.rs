//! A child process that cannot outlive the bed.
//!
//! Every child is a process group of its own with a small watcher in it: a shell that
//! reads from a pipe which this process holds, and kills the child when the pipe closes.
//! So a child dies when its handle is dropped, when the test panics, and also when the
//! test is killed by a signal that it cannot catch.

use std::{
    fs::File,
    io,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The watcher. The shell gives background commands an empty input, hence the detour over
/// descriptor 3; `$$` is the shell itself, which `exec` turns into the child.
const WATCHER: &str = r#"exec 3<&0
{ cat <&3 >/dev/null; kill -9 $$; } 2>/dev/null &
exec "$@" </dev/null 3<&-"#;

/// A running child.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    lifeline: Option<ChildStdin>,
    log: PathBuf,
}

/// What to run.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The name for messages.
    pub name: &'a str,
    /// The program.
    pub program: &'a Path,
    /// Its arguments.
    pub args: &'a [String],
    /// Variables added to the inherited environment.
    pub env: &'a [(String, String)],
    /// The working directory.
    pub folder: &'a Path,
    /// Where standard output and standard error go, appended.
    pub log: &'a Path,
}

// === impl Process ===

impl Process {
    /// Starts a child.
    pub fn start(plan: &Plan<'_>) -> io::Result<Self> {
        let log = File::options().create(true).append(true).open(plan.log)?;
        let mut child = Command::new("/bin/sh")
            .args(["-c", WATCHER, plan.name])
            .arg(plan.program)
            .args(plan.args)
            .envs(plan.env.iter().map(|(k, v)| (k, v)))
            .current_dir(plan.folder)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        let lifeline = child.stdin.take();
        Ok(Self {
            name: plan.name.to_owned(),
            child,
            lifeline,
            log: plan.log.to_owned(),
        })
    }

    /// The child's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The name for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Everything the child has printed.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The last lines of what the child has printed.
    pub fn tail(&self, lines: usize) -> String {
        tail(&self.output(), lines)
    }

    /// How the child ended, if it has.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends a signal to the child alone; a child that has ended is no error.
    pub fn signal(&mut self, signal: Signal) {
        if self.exited().is_none()
            && let Some(pid) = self.pid()
        {
            let _ = kill_process(pid, signal);
        }
    }

    /// Asks the child to end and kills it after `patience`. Says how it ended.
    pub fn stop(&mut self, patience: Duration) -> io::Result<ExitStatus> {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(status) = self.exited() {
                self.bury();
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.kill()
    }

    /// Kills the child at once.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        let status = self.child.wait()?;
        self.bury();
        Ok(status)
    }

    /// Ends the watcher, before its pipe closes and it signals a process id that may by
    /// then be another's. The group still exists, since the watcher is in it.
    fn bury(&mut self) {
        if self.lifeline.is_some()
            && let Some(pid) = self.pid()
        {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        self.lifeline = None;
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// The last lines of a text.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// An exit status in words.
pub fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(folder: &Path, script: &str) -> Process {
        Process::start(&Plan {
            name: "child",
            program: Path::new("/bin/sh"),
            args: &["-c".to_owned(), script.to_owned()],
            env: &[],
            folder,
            log: &folder.join("log"),
        })
        .unwrap()
    }

    fn alive(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // A zombie is waiting for its parent only.
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    }

    fn gone(pid: u32) -> bool {
        (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            !alive(pid)
        })
    }

    #[test]
    fn a_child_ends_with_its_handle() {
        let folder = tempfile::tempdir().unwrap();
        let child = start(folder.path(), "sleep 600");
        let pid = child.id();
        assert!(alive(pid));
        drop(child);
        assert!(gone(pid));
    }

    #[test]
    fn a_child_ends_when_its_pipe_closes_without_a_word() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = start(folder.path(), "sleep 600");
        // What the kernel does when the test is killed.
        child.lifeline = None;
        let status = child.child.wait().unwrap();
        assert_eq!(status.signal(), Some(9));
    }

    #[test]
    fn a_child_may_end_by_itself_and_says_how() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = start(
            folder.path(),
            "trap 'echo bye; exit 3' TERM; echo on; sleep 600 & wait",
        );
        while !child.output().contains("on") {
            std::thread::sleep(Duration::from_millis(10));
        }
        let status = child.stop(Duration::from_secs(10)).unwrap();
        assert_eq!((status.code(), child.tail(1)), (Some(3), "bye".to_owned()));
    }
}
