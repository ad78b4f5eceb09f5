use std::fs;
use std::path::PathBuf;

use super::*;

const SAMPLES: [&str; 2] = ["minimal", "everything"];

fn path(file: &str) -> PathBuf {
    PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap())
        .join("docs/render")
        .join(file)
}

fn args(files: &[PathBuf]) -> RenderArgs {
    RenderArgs {
        files: files.to_vec(),
        namespace: "default".to_owned(),
        output: Format::Yaml,
        operator_namespace: Some("glance-operator".to_owned()),
        diff: false,
        context: None,
        hub_context: None,
    }
}

async fn rendered(sample: &str) -> Outcome {
    run(&args(&[path(&format!("{sample}.yaml"))]))
        .await
        .unwrap()
}

/// The samples of the documentation. After a wanted change: `UPDATE_SAMPLES=1`.
#[tokio::test]
async fn the_documented_samples_are_what_is_printed() {
    for sample in SAMPLES {
        let outcome = rendered(sample).await;
        assert!(outcome.is_well, "{:?}", outcome.notes);
        let file = path(&format!("{sample}.rendered.yaml"));
        if std::env::var_os("UPDATE_SAMPLES").is_some() {
            fs::write(&file, &outcome.text).unwrap();
        }
        let documented = fs::read_to_string(&file).unwrap();
        assert!(
            documented == outcome.text,
            "{} is not what is printed; run the test with UPDATE_SAMPLES=1 and look at the difference",
            file.display()
        );
    }
}

#[tokio::test]
async fn no_value_of_a_secret_is_printed() {
    for sample in SAMPLES {
        let outcome = rendered(sample).await;
        for printed in outcome.notes.iter().chain([&outcome.text]) {
            assert!(!printed.contains("not-printed") && !printed.contains("not$"));
            let encoded = data_encoding::BASE64.encode(b"not-printed");
            assert!(!printed.contains(&encoded));
        }
    }
}

#[tokio::test]
async fn another_password_is_another_name_and_shows_nowhere_else() {
    let text = fs::read_to_string(path("minimal.yaml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.yaml");
    fs::write(
        &other,
        text.replace("access-key-id: not-printed", "access-key-id: another"),
    )
    .unwrap();
    let (one, two) = (
        rendered("minimal").await,
        run(&args(&[other])).await.unwrap(),
    );
    assert_ne!(one.text, two.text);
    let neutral = |text: &str| {
        let hash = backends_secret(text);
        text.replace(&hash, "images-backends-0")
    };
    assert_eq!(neutral(&one.text), neutral(&two.text));
}

/// The name of the Secret with the stores.
fn backends_secret(text: &str) -> String {
    let start = text.find("images-backends-").unwrap();
    text[start..]
        .chars()
        .take("images-backends-".len() + 8)
        .collect()
}

#[tokio::test]
async fn what_the_webhook_would_refuse_is_refused_with_its_words() {
    let text = fs::read_to_string(path("minimal.yaml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("refused.yaml");
    let wrong = text.replace("http://keystone.openstack.svc:5000/v3", "http://:5000/v3");
    fs::write(&file, wrong).unwrap();
    let outcome = run(&args(&[file])).await.unwrap();
    assert!(!outcome.is_well && outcome.text.is_empty());
    assert_eq!(
        outcome.notes,
        [
            "refused: Glance images: spec.keystoneEndpoint: Invalid value: \"http://:5000/v3\": URL must include a host"
        ]
    );
}

#[tokio::test]
async fn what_is_not_given_is_made_up_and_said_so() {
    let text = fs::read_to_string(path("minimal.yaml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bare.yaml");
    let documents: Vec<&str> = text.split("---\n").take(2).collect();
    fs::write(&file, documents.join("---\n")).unwrap();
    let outcome = run(&args(std::slice::from_ref(&file))).await.unwrap();
    assert!(outcome.is_well);
    assert_eq!(outcome.notes.len(), 3, "{:?}", outcome.notes);
    assert!(outcome.text.contains("kind: Deployment"));

    fs::write(&file, documents[0]).unwrap();
    let outcome = run(&args(&[file])).await.unwrap();
    assert!(!outcome.is_well);
    assert!(
        outcome.notes.iter().any(|note| note.contains("isDefault")),
        "{:?}",
        outcome.notes
    );
}

#[tokio::test]
async fn the_json_form_is_one_list() {
    let mut args = args(&[path("minimal.yaml")]);
    args.output = Format::Json;
    let list: serde_json::Value = serde_json::from_str(&run(&args).await.unwrap().text).unwrap();
    let items = list["items"].as_array().unwrap();
    let kinds: Vec<&str> = items
        .iter()
        .map(|item| item["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "Secret",
            "Secret",
            "ConfigMap",
            "Database",
            "User",
            "Grant",
            "Job",
            "Deployment",
            "Service",
            "PodDisruptionBudget",
            "CronJob",
        ]
    );
}
