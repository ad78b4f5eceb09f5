//! A real `MariaDB` server with TLS, and the Python driver that Glance reaches it with. Both are this machine's own; who
//! lacks one of them is told so and goes without.

use std::{
    env, fs,
    io::Write as _,
    net::{Ipv6Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{
    certificates::Authority,
    expect::eventually,
    go, patience, ports,
    process::{Plan, Process},
};

/// What Glance 2026.1 runs on.
const PACKAGES: [&str; 3] = [
    "PyMySQL==1.1.2",
    "SQLAlchemy==2.0.46",
    "oslo.config==10.3.0",
];

/// The scripts that make the tables of the server itself.
const SYSTEM_TABLES: [&str; 3] = [
    "mysql_system_tables.sql",
    "mysql_performance_tables.sql",
    "mysql_system_tables_data.sql",
];

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub struct DatabaseServer {
    _process: Process,
    port: u16,
    folder: PathBuf,
    ipv6: bool,
}

/// A Python with the driver.
#[derive(Debug)]
pub struct Driver(PathBuf);

// === impl DatabaseServer ===

impl DatabaseServer {
    /// The program, or a sentence that says what is missing.
    pub fn program() -> Result<PathBuf> {
        let path = env::var_os("PATH").unwrap_or_default();
        let more = ["/usr/sbin", "/usr/local/sbin", "/usr/libexec"].map(PathBuf::from);
        env::split_paths(&path)
            .chain(more)
            .map(|folder| folder.join("mariadbd"))
            .find(|file| file.is_file())
            .context("there is no mariadbd (apt-get install mariadb-server-core)")
    }

    /// Starts a server whose certificate is made out to `localhost` alone. `setup` is SQL, one statement per line.
    /// Below its folder lie the files of clients: `right` has what the server trusts, `wrong` another authority's
    /// certificate.
    pub async fn start(program: &Path, folder: &Path, setup: &str) -> Result<Self> {
        let (data, keys) = (folder.join("data"), folder.join("keys"));
        for new in [&data, &keys] {
            fs::create_dir_all(new)?;
        }
        let authority = Authority::new("database")?;
        let server = authority.server(&["localhost"])?;
        server.write(&keys, "server")?;
        fs::write(keys.join("ca.crt"), authority.pem())?;
        let client = authority.client("glance", None)?;
        let other = Authority::new("other")?;
        for (name, trusted) in [("right", authority.pem()), ("wrong", other.pem())] {
            let folder = folder.join(name);
            fs::create_dir_all(&folder)?;
            fs::write(folder.join("ca.crt"), trusted)?;
            client.write(&folder, "tls")?;
        }
        bootstrap(program, &data)?;

        let ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
        let port = ports::free()?;
        let setup_file = folder.join("setup.sql");
        fs::write(&setup_file, setup)?;
        let mut args = common(&data);
        args.extend([
            format!("--port={port}"),
            format!("--bind-address=127.0.0.1{}", if ipv6 { ",::1" } else { "" }),
            format!("--socket={}", data.join("socket").display()),
            format!("--pid-file={}", data.join("pid").display()),
            format!("--init-file={}", setup_file.display()),
            "--character-set-server=utf8mb4".to_owned(),
            format!("--ssl-ca={}", keys.join("ca.crt").display()),
            format!("--ssl-cert={}", keys.join("server.crt").display()),
            format!("--ssl-key={}", keys.join("server.key").display()),
        ]);
        let mut process = Process::start(&Plan {
            name: "mariadbd",
            program,
            args: &args,
            env: &[],
            folder,
            log: &folder.join("server.log"),
        })?;
        let ready = eventually(patience::seconds(60), "the database server", async || {
            if let Some(status) = process.exited() {
                return Ok(Err(anyhow::anyhow!("it has ended: {status}")));
            }
            tokio::net::TcpStream::connect(("127.0.0.1", port))
                .await
                .map(|_| Ok(()))
        })
        .await;
        if let Err(error) = ready.and_then(|inner| inner) {
            return Err(error.context(process.tail(20)));
        }
        Ok(Self {
            _process: process,
            port,
            folder: folder.to_owned(),
            ipv6,
        })
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder with a client's files, `right` or `wrong`.
    pub fn client(&self, which: &str) -> PathBuf {
        self.folder.join(which)
    }

    /// Whether it listens on `::1` as well.
    pub fn ipv6(&self) -> bool {
        self.ipv6
    }
}

fn common(data: &Path) -> Vec<String> {
    let mut args = vec![
        "--no-defaults".to_owned(),
        format!("--datadir={}", data.display()),
        "--silent-startup".to_owned(),
        "--innodb-buffer-pool-size=8M".to_owned(),
        "--skip-log-bin".to_owned(),
    ];
    // It refuses to be root by accident.
    if rustix::process::geteuid().is_root() {
        args.push("--user=root".to_owned());
    }
    args
}

fn bootstrap(program: &Path, data: &Path) -> Result<()> {
    let scripts = ["/usr/share/mysql", "/usr/share/mariadb"].map(Path::new);
    let scripts = scripts
        .iter()
        .find(|folder| folder.join(SYSTEM_TABLES[0]).is_file())
        .context("mariadbd is there and its system tables are not")?;
    let mut sql = "create database mysql;\nuse mysql;\n".to_owned();
    for script in SYSTEM_TABLES {
        sql.push_str(&fs::read_to_string(scripts.join(script))?);
    }
    let mut command = Command::new(program);
    command.args(common(data)).arg("--bootstrap");
    let output = run(&mut command, sql.as_bytes())?;
    if !output.status.success() {
        bail!("making the system tables: {}", said(&output));
    }
    Ok(())
}

// === impl Driver ===

impl Driver {
    /// A Python with the packages that Glance uses, made once per machine; or why there is none.
    pub fn find_or_make() -> Result<Self> {
        let cache = go::cache_folder()?;
        let hash = data_encoding::HEXLOWER.encode(&Sha256::digest(PACKAGES.concat()));
        let folder = cache.join(format!("python-{}", &hash[..12]));
        let python = folder.join("bin/python");
        if python.is_file() {
            return Ok(Self(python));
        }
        fs::create_dir_all(&cache)?;
        let lock = fs::File::create(cache.join("python.lock"))?;
        lock.lock()?;
        if python.is_file() {
            return Ok(Self(python));
        }
        // A venv knows its own path, so it is made where it stays, and removed when it does not get finished.
        let made = make(&folder);
        if made.is_err() {
            let _ = fs::remove_dir_all(&folder);
        }
        made.map(|()| Self(python))
    }

    /// Runs a script with `input` as JSON on its standard input; what it prints is JSON too.
    pub fn run(&self, script: &str, input: &Value) -> Result<Value> {
        let mut command = Command::new(&self.0);
        command.args(["-I", "-c", script]);
        let output = run(&mut command, input.to_string().as_bytes())?;
        if !output.status.success() {
            bail!("the script failed: {}", said(&output));
        }
        serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn make(folder: &Path) -> Result<()> {
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--clear"]).arg(folder);
    let output = run(&mut venv, b"").context("there is no python3")?;
    if !output.status.success() {
        bail!("python3 makes no virtual environment: {}", said(&output));
    }
    let mut pip = Command::new(folder.join("bin/python"));
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    let output = run(pip.args(PACKAGES), b"")?;
    if !output.status.success() {
        bail!(
            "pip cannot install {}: {}",
            PACKAGES.join(" "),
            said(&output)
        );
    }
    Ok(())
}

fn run(command: &mut Command, input: &[u8]) -> Result<Output> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let stdin = child.stdin.take();
    let input = input.to_vec();
    // Beside the reading: a child may answer before it has read everything.
    let writer = std::thread::spawn(move || {
        if let Some(mut stdin) = stdin {
            // Who reads no further has its reasons, and says them.
            let _ = stdin.write_all(&input);
        }
    });
    let output = child.wait_with_output()?;
    let _ = writer.join();
    Ok(output)
}

/// The last line that a program printed.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    text.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("nothing")
        .to_owned()
}
