//! What is promised of the image, as far as it can be read without a container engine: the Dockerfile's last stage, and the
//! pod of the chart that runs it.

use std::collections::BTreeMap;

use serde_json::json;

use crate::{charts, checkout};

/// The instructions of the last stage, each on one line.
fn last_stage() -> Vec<String> {
    let text = std::fs::read_to_string(checkout().join("Dockerfile")).unwrap();
    let mut all: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (piece, more) = match line.strip_suffix('\\') {
            Some(piece) => (piece.trim(), true),
            None => (line, false),
        };
        match all.last_mut().filter(|_| goes_on) {
            Some(last) => {
                last.push(' ');
                last.push_str(piece);
            }
            None => all.push(piece.to_owned()),
        }
        goes_on = more;
    }
    let start = all
        .iter()
        .rposition(|line| line.starts_with("FROM "))
        .unwrap();
    all.split_off(start)
}

fn of<'a>(stage: &'a [String], instruction: &str) -> Vec<&'a str> {
    let lines = stage
        .iter()
        .filter_map(|line| line.strip_prefix(instruction));
    lines.map(str::trim).collect()
}

#[test]
fn the_image_is_one_program_that_runs_as_a_number_on_a_base_without_a_shell() {
    let stage = last_stage();
    assert_eq!(of(&stage, "USER "), ["65532:65532"]);
    assert_eq!(of(&stage, "WORKDIR "), ["/"]);
    assert_eq!(of(&stage, "ENTRYPOINT "), ["[\"/manager\"]"]);
    assert_eq!(of(&stage, "EXPOSE "), ["8080 8081 9443"]);
    // Nothing can be run to build it: the base has no shell. A command would be an argument of the operator.
    for instruction in ["RUN ", "CMD ", "ADD ", "VOLUME "] {
        assert!(of(&stage, instruction).is_empty(), "{instruction}");
    }
    let copied = of(&stage, "COPY ");
    assert_eq!(copied[0], "--from=build /manager /manager");
    assert!(
        copied.iter().all(|copy| copy.starts_with("--from=build ")),
        "{copied:?}"
    );

    let dockerfile = std::fs::read_to_string(checkout().join("Dockerfile")).unwrap();
    let base = dockerfile
        .lines()
        .find_map(|line| line.strip_prefix("ARG BASE_IMAGE="));
    let base = base.unwrap();
    assert!(
        base.contains("/distroless/static") && base.contains(":nonroot"),
        "{base}"
    );
    // The commit is in the binary, too: `glance_operator_build_info` and the first line of the log say it.
    let build =
        "binary=$(GLANCE_OPERATOR_REVISION=$REVISION .ci/binary) && cp \"$binary\" /manager";
    assert!(dockerfile.contains(build));
}

#[test]
fn the_image_says_what_it_is_and_a_release_where_it_comes_from() {
    let stage = last_stage();
    let labels = of(&stage, "LABEL ").concat();
    let prefix = "org.opencontainers.image.";
    let found: BTreeMap<&str, &str> = labels
        .split(prefix)
        .filter_map(|label| label.trim().split_once('='))
        .map(|(name, value)| (name, value.trim_matches('"')))
        .collect();
    assert_eq!(found["title"], "glance-operator");
    assert_eq!(found["licenses"], "Apache-2.0");
    for name in ["description", "vendor"] {
        assert!(
            !found[name].is_empty() && !found[name].contains('$'),
            "{name}"
        );
    }
    for (name, argument) in [
        ("created", "${CREATED}"),
        ("revision", "${REVISION}"),
        ("source", "${SOURCE}"),
        ("url", "${SOURCE}"),
        ("version", "${VERSION}"),
    ] {
        assert_eq!(found[name], argument, "{name}");
    }
}

#[tokio::test]
async fn the_pod_of_the_chart_runs_the_image_as_it_was_made() {
    let stage = last_stage();
    let objects = charts::render("glance-operator", "glance-operator", "default", &json!({}))
        .await
        .unwrap();
    let deployment = objects.iter().find(|o| o["kind"] == "Deployment").unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert!(container.get("command").is_none(), "{container}");
    let user = &pod["securityContext"];
    let number = format!("{}:{}", user["runAsUser"], user["runAsGroup"]);
    assert_eq!(of(&stage, "USER "), [number.as_str()]);
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    let ports = container["ports"].as_array().unwrap().iter();
    let ports: Vec<String> = ports
        .map(|port| port["containerPort"].to_string())
        .collect();
    assert_eq!(of(&stage, "EXPOSE "), [ports.join(" ").as_str()]);
}
