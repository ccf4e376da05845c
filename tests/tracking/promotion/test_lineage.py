"""Lineage by tags alone, drawn: from a bundle to the embeddings and the text of each of its languages."""

from mlflow import MlflowClient

from tests.tracking.promotion.prepared import Prepared, begins_with
from tests.tracking.promotion.project import Project, lingraft
from tests.tracking_stores import quiet

pytestmark = quiet


@begins_with(Prepared.FILLED)
def test_a_bundle_leads_to_the_embeddings_and_the_text_of_every_language(project: Project) -> None:
    client = MlflowClient()
    bundle = client.get_model_version(project.bundle, "1").tags
    german = client.get_model_version(project.embeddings, "2").tags["fingerprint"]
    client.set_model_version_tag(project.embeddings, "2", "data.text", "a1" * 32)
    client.set_model_version_tag(project.primary, "1", "data.documents", "b2" * 32)
    whole = [line.split(" [")[0].strip() for line in lingraft("lineage").splitlines()]
    assert whole[:7] == [
        f"{project.primary} 1",
        f"├── {project.embeddings} 1",
        f"├── {project.embeddings} 2",
        f"└── {project.recipe.name}-task-topic 1",
        f"└── {project.bundle} 1",
        "├── en",
        "└── de",
    ]
    assert sum("promote" in line for line in whole) == 4
    drawn = [line.lstrip(" │├└─") for line in lingraft("lineage").splitlines()]
    english, marks = project.mark, {name: bundle[f"fingerprint.{name}"][:12] for name in ("en", "de")}
    below = drawn.index(next(line for line in drawn if line.startswith(project.bundle)))
    assert "] en, de" in drawn[below]
    assert drawn[below + 1 : below + 3] == [
        f"en [{marks['en']}] of {project.primary} 1 [{english[:12]}] documents {'b2' * 6}",
        f"de [{marks['de']}] of {project.embeddings} 2 [{german[:12]}] text {'a1' * 6}",
    ]
    client.delete_model_version(project.embeddings, "2")
    assert f"de [{marks['de']}] of embeddings {german[:12]}, not registered" in lingraft("lineage")
