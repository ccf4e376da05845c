"""A recipe for tests that stop at the text: the rest of it is only what a recipe must have."""

from typing import Any

from lingraft.config.recipe import Recipe

_TRAINING = {"steps": 1, "batch_blocks": 1, "learning_rate": 1e-3}


def text_recipe(text: dict[str, Any], **changes: Any) -> Recipe:
    """English and German, with the [text] given."""
    return Recipe.parse(
        {
            "name": "test",
            "source": "en",
            "targets": ["de"],
            "text": text,
            "tokenizer": {"vocabulary": 100},
            "encoder": {
                "width": 8,
                "layers": 2,
                "attention_heads": 2,
                "mlm_heads": [1, 2],
                "block_tokens": 8,
            },
            "pretraining": _TRAINING,
            "adaptation": {**_TRAINING, "depth": 1},
            **changes,
        }
    )
