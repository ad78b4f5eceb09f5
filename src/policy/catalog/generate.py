#!/usr/bin/env python3
"""Write the catalogs of configuration options that Glance releases know.

    src/policy/catalog/generate.py [--check] [RELEASE...]

For each release (without arguments: every file in pins/) it makes a virtual
environment with Glance and the libraries that declare options, in exactly the
versions of pins/RELEASE.txt, asks that environment's own
oslo-config-generator for the options of the namespaces below, and reduces the
answer to RELEASE.json beside this file. The same pins give the same bytes;
--check compares instead of writing and fails when they differ.

A catalog holds
  service, release, packages (versions of what declares options), namespaces,
  sections: {SECTION: {
      opts:        names a file may carry, spelled with underscores
      plugin_opts: names that a plugin registers when the process starts
      deprecated:  {old name: "[section] new name"}
      removal:     {option that a later release drops: why, one line}
      types:       {option: {type, choices, min, max, list_bounds}},
                   only of what is not a plain string }},
  store_drivers: {DRIVER: the same shape}, for the section of a store, which
      has the store's name.

Needs Python 3.11 or later and pip.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

NAMESPACES = [
    # What Glance's own sample of glance-api.conf is made of.
    "glance.api", "glance.store", "glance.multi_store", "castellan.config",
    "keystonemiddleware.auth_token", "oslo.concurrency", "oslo.db", "oslo.log",
    "oslo.messaging", "oslo.middleware.cors", "oslo.middleware.healthcheck",
    "oslo.middleware.http_proxy_to_wsgi", "oslo.policy", "oslo.reports",
    # Import plugins and the web-download filter: a file of its own upstream,
    # but the same process reads it.
    "glance",
    # What the cache and manage commands add, which read the same files.
    "glance.cache", "glance.manage", "glance.scrubber",
    "oslo.limit", "osprofiler",
]
STORE_SECTION = re.compile(r"^glance\.store\.(.+?)\.store$")
# keystoneauth1's v3password and the session options: an auth plugin registers
# them when the process starts, so no generator can list them.
AUTH_PLUGIN_OPTS = [
    "auth_url", "default_domain_id", "default_domain_name", "domain_id",
    "domain_name", "password", "project_domain_id", "project_domain_name",
    "project_id", "project_name", "system_scope", "trust_id", "user_domain_id",
    "user_domain_name", "user_id", "username",
]


def run(venv, program, arguments, **options):
    command = [os.path.join(venv, "bin", program)] + arguments
    return subprocess.run(command, check=True, text=True, **options)


def environment(path, pins):
    """Glance in a new virtual environment."""
    subprocess.run([sys.executable, "-m", "venv", path], check=True)
    run(path, "python", [
        "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        "--constraint", pins, "glance", "glance_store[s3]", "osprofiler",
    ], stdout=sys.stderr)


def registered(venv):
    """Namespace: package and version that declares it."""
    code = ("import importlib.metadata as m, json;"
            "points = m.entry_points(group='oslo.config.opts');"
            "print(json.dumps({p.name: [p.dist.name, p.dist.version] for p in points}))")
    return json.loads(run(venv, "python", ["-c", code], stdout=subprocess.PIPE).stdout)


def generate(venv, namespaces):
    arguments = ["--format", "json"]
    for namespace in namespaces:
        arguments += ["--namespace", namespace]
    # Drivers whose libraries are absent only print a warning.
    done = run(venv, "oslo-config-generator", arguments,
               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout)["options"]


def bounded(venv, namespaces):
    """Section: list options that insist on [..], which the generator does not tell."""
    code = """
import json, sys
from oslo_config import generator
found = {}
for namespace, groups in generator._list_opts(sys.argv[1:]):
    for group, options in groups:
        section = getattr(group, "name", group) or "DEFAULT"
        for option in options:
            if getattr(getattr(option, "type", None), "bounds", False):
                found.setdefault(section, []).append(option.dest)
print(json.dumps(found))
"""
    done = run(venv, "python", ["-c", code] + namespaces,
               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout.splitlines()[-1])


def underscored(name):
    return name.replace("-", "_")


def described(option):
    out = {}
    kind = option.get("type")
    if kind and kind not in ("string value", "unknown value"):
        out["type"] = kind
    if option.get("choices"):
        out["choices"] = [choice[0] for choice in option["choices"]]
    for bound in ("min", "max"):
        if option.get(bound) is not None:
            out[bound] = option[bound]
    return out


def reduced(options, bounds):
    live, renamed, removal, types = {}, {}, {}, {}
    for section, group in options.items():
        section = section or "DEFAULT"
        for option in group["opts"]:
            name = underscored(option.get("dest") or option["name"])
            live.setdefault(section, set()).add(name)
            kind = described(option)
            if name in bounds.get(section, ()):
                kind["list_bounds"] = True
            if kind:
                types.setdefault(section, {})[name] = kind
            for old in option.get("deprecated_opts") or []:
                successor = "[%s] %s" % (section, name)
                where = renamed.setdefault(old.get("group") or section, {})
                where[underscored(old.get("name") or name)] = successor
            if option.get("deprecated_for_removal"):
                why = " ".join((option.get("deprecated_reason") or "").split())
                removal.setdefault(section, {})[name] = why[:300]
    sections, drivers = {}, {}
    for section in set(live) | set(renamed):
        names = live.get(section, set())
        old_names = renamed.get(section, {})
        body = {
            "opts": sorted(names),
            "deprecated": {old: new for old, new in old_names.items() if old not in names},
            "removal": removal.get(section, {}),
            "types": types.get(section, {}),
        }
        store = STORE_SECTION.match(section)
        if store:
            drivers[store.group(1)] = body
        elif section in ("cinder", "file"):
            drivers[section] = body
        else:
            sections[section] = body
    return sections, drivers


def catalog(release, venv):
    packages = registered(venv)
    namespaces = [n for n in NAMESPACES if n in packages]
    sections, drivers = reduced(generate(venv, namespaces), bounded(venv, namespaces))
    sections["keystone_authtoken"]["plugin_opts"] = AUTH_PLUGIN_OPTS
    total = sum(len(section["opts"]) for section in sections.values())
    if total < 300 or "DEFAULT" not in sections or "s3" not in drivers:
        sys.exit("%s: only %d options in %d sections" % (release, total, len(sections)))
    document = {
        "service": "glance",
        "release": release,
        "packages": dict(packages[n] for n in namespaces),
        "namespaces": namespaces,
        "sections": sections,
        "store_drivers": drivers,
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def main():
    pins = os.path.join(HERE, "pins")
    known = sorted(name.removesuffix(".txt") for name in os.listdir(pins))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("release", nargs="*", default=known)
    arguments = parser.parse_args()
    differing = []
    for release in arguments.release:
        with tempfile.TemporaryDirectory(prefix="option-catalog-") as venv:
            environment(venv, os.path.join(pins, release + ".txt"))
            text = catalog(release, venv)
        path = os.path.join(HERE, release + ".json")
        if arguments.check:
            with open(path, encoding="utf-8") as file:
                if file.read() != text:
                    differing.append(release)
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        print("%s: %d bytes" % (release, len(text)))
    if differing:
        sys.exit("not as generated: " + ", ".join(differing))


if __name__ == "__main__":
    main()
