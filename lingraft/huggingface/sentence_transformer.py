"""The folder of an embedding model of sentence-transformers: what its modules compute above the encoder.

Both generations of names are read: `sentence_transformers.models.Pooling` and those of version 6. The older one is
written, which every version and other servers of such folders read.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pydantic
import torch
from safetensors.torch import save_file
from torch import Tensor

from lingraft.artifacts.files import write_json
from lingraft.config.encoder import MIN_BLOCK_TOKENS
from lingraft.config.tasks import DenseLayer, NormaliseLayer, Retrieval, VectorLayer
from lingraft.huggingface import hub
from lingraft.huggingface.weights import CheckpointError
from lingraft.tasks.retrieval import TextEmbedder

_PACKAGE = "sentence_transformers."
_TRANSFORMER_CONFIGS = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Names of the transformer module's settings; the first that is there counts, as in the package."""
_PLAIN_TRANSFORMER: Mapping[str, Any] = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
"""The one value of each setting that means a plain encoder."""
_OWN_SETTINGS = {"max_seq_length", "do_lower_case"}
_SENTENCE = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
_POOLINGS = {"mean": "mean", "cls": "first", "lasttoken": "last"}
"""Their pooling modes that we have, and ours."""
_OLD_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_ACTIVATIONS = {
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.linear.Identity": "identity",
}
_COSINE = "cosine"
_SIMILARITIES = ("dot", "euclidean", "manhattan")
"""Their similarities beside the cosine; one that is unknown is the cosine, as in the package."""


class EmbeddingModel(NamedTuple):
    """Parts of an embedding model beside its encoder."""

    body: Path
    """Folder of the encoder and its tokenizer."""
    weighted: tuple[Path, ...]
    """Folders of the modules that have weights."""
    settings: Retrieval
    tensors: dict[str, Tensor]
    """Tensors of the dense layers, by the names of `lingraft.tasks.retrieval.TextEmbedder`."""
    longest: int | None
    """Tokens of the longest text, special ones included; None if positions alone limit it."""
    lower_case: bool
    """Whether texts are lower-cased, whatever the tokenizer does."""
    notes: list[str]


class _Module(NamedTuple):
    kind: str
    folder: Path


def is_embedding_model(folder: Path) -> bool:
    """Whether a folder holds modules of sentence-transformers."""
    return (folder / hub.MODULES).is_file()


def read_embedding_model(folder: Path) -> EmbeddingModel:
    """Read the modules above the encoder, the prompts, and the length of the longest text."""
    transformer, *others = _modules(folder)
    if transformer.kind != "Transformer" or not others or others[0].kind != "Pooling":
        raise CheckpointError(
            f"{folder / hub.MODULES} has modules {[transformer.kind, *(module.kind for module in others)]}; a primary "
            "and its task are made of a Transformer, a Pooling and what follows them. Take a model that has these."
        )
    settings = _settings_of(transformer.folder, _TRANSFORMER_CONFIGS)
    _require_plain(transformer.folder, settings)
    _require_tokenizer_fits(transformer.folder)
    of_model = _settings_of(folder, (hub.SENTENCE_TRANSFORMERS_CONFIG,))
    prompts, notes = _prompts(folder, of_model)
    is_normalised = len(others) > 1 and others[1].kind == "Normalize"
    pooling, width = _pooling(others[0].folder, next(filter(None, prompts.values()), ""), is_normalised)
    body_width = hub.read_config(transformer.folder).get("hidden_size")
    if width != body_width:
        raise CheckpointError(
            f"{others[0].folder / hub.CONFIG} pools vectors of width {width}, but the encoder's are {body_width} wide. "
            "Fetch the folder anew, from one source."
        )
    layers: list[VectorLayer] = []
    tensors: dict[str, Tensor] = {}
    weighted = [transformer.folder]
    for module in others[1:]:
        if module.kind == "Normalize":
            _require_settings(module.folder, _settings_of(module.folder), _SENTENCE)
            layers.append(NormaliseLayer(kind="normalise"))
        elif module.kind == "Dense":
            dense, found = _dense(module.folder, width)
            tensors |= {f"layers.{len(layers)}.0.{name}": tensor for name, tensor in found.items()}
            layers.append(dense)
            weighted.append(module.folder)
            width = dense.width
        elif module.kind == "Dropout":
            notes.append(f"{module.folder.name} is left out: vectors are computed without dropout")
        else:
            raise CheckpointError(
                f"{folder / hub.MODULES} has a module {module.kind}, which no task of ours has: behind the pooling, it "
                "has Dense and Normalize. Take a model with these."
            )
    similarity = of_model.get("similarity_fn_name")
    if (kept := _kept_width(folder, of_model)) is not None and kept < width:
        if similarity in _SIMILARITIES:
            raise CheckpointError(
                f"{folder / hub.SENTENCE_TRANSFORMERS_CONFIG} has truncate_dim = {kept} and similarity {similarity!r}, "
                "by which cut vectors rank otherwise than by the cosine. Set the similarity to 'cosine', if the model "
                "serves you so."
            )
        tensors[f"layers.{len(layers)}.0.weight"] = torch.eye(kept, width)
        layers.append(DenseLayer(kind="dense", width=kept, bias=False, activation="identity"))
        notes.append(f"truncate_dim = {kept} is a dense layer that keeps the first numbers of {width}")
    values = {
        "pooling": pooling,
        "layers": tuple(layers),
        "query_prefix": prompts.pop("query"),
        "passage_prefix": prompts.pop("document"),
        "prompts": prompts,
        "default_prompt": of_model.get("default_prompt_name"),
        "similarity": similarity if similarity in _SIMILARITIES else None,
    }
    try:
        retrieval = Retrieval.model_validate(values)
    except pydantic.ValidationError as error:
        problems = "; ".join(
            ": ".join((*map(str, each["loc"]), each["msg"].removeprefix("Value error, "))) for each in error.errors()
        )
        path = folder / hub.SENTENCE_TRANSFORMERS_CONFIG
        raise CheckpointError(f"{path} fits no task: {problems}. Correct it, or take another model.") from error
    return EmbeddingModel(
        body=transformer.folder,
        weighted=tuple(weighted),
        settings=retrieval,
        tensors=tensors,
        longest=_longest(transformer.folder, settings),
        lower_case=bool(settings.get("do_lower_case")),
        notes=notes,
    )


def write_modules(folder: Path, net: TextEmbedder) -> None:
    """Write the modules above an encoder, whose own files lie in the folder, with prompts and the longest text."""
    settings = net.settings
    write_json(folder / _TRANSFORMER_CONFIGS[0], {"max_seq_length": net.encoder.shape.block_tokens})
    kinds = ["Transformer", "Pooling"]
    width = net.encoder.shape.width
    pooling = next(name for name, ours in _POOLINGS.items() if ours == settings.pooling)
    modes = {key: name == pooling for key, name in _OLD_POOLINGS.items()}
    _write_config(folder, 1, "Pooling", {"word_embedding_dimension": width, **modes})
    state = net.layers.state_dict()
    for place, layer in enumerate(settings.layers):
        if isinstance(layer, NormaliseLayer):
            kinds.append("Normalize")
            continue
        kinds.append("Dense")
        activation = next(name for name, ours in _ACTIVATIONS.items() if ours == layer.activation)
        config = {"in_features": width, "out_features": layer.width, "bias": layer.bias}
        dense = _write_config(folder, place + 2, "Dense", config | {"activation_function": activation})
        names = ("weight", "bias") if layer.bias else ("weight",)
        save_file({f"linear.{name}": state[f"{place}.0.{name}"] for name in names}, dense / "model.safetensors")
        width = layer.width
    entries = [
        {"idx": place, "name": str(place), "path": _place(place, kind), "type": f"{_PACKAGE}models.{kind}"}
        for place, kind in enumerate(kinds)
    ]
    write_json(folder / hub.MODULES, entries)
    of_model = {
        "prompts": settings.named_prompts,
        "default_prompt_name": settings.default_prompt,
        "similarity_fn_name": settings.similarity or _COSINE,
    }
    write_json(folder / hub.SENTENCE_TRANSFORMERS_CONFIG, of_model)


def _write_config(folder: Path, place: int, kind: str, config: Mapping[str, Any]) -> Path:
    made = folder / _place(place, kind)
    made.mkdir()
    write_json(made / hub.CONFIG, config)
    return made


def _place(place: int, kind: str) -> str:
    """Return a module's folder; the encoder lies in that of the model."""
    return f"{place}_{kind}" if place else ""


def _modules(folder: Path) -> list[_Module]:
    path = folder / hub.MODULES
    found = []
    for entry in hub.read_json(path, list):
        kind, place = (entry.get(key) for key in ("type", "path")) if isinstance(entry, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(place, str):
            raise CheckpointError(f"{path} has an entry {entry!r} without a type and a path. Fetch it anew.")
        if not kind.startswith(_PACKAGE):
            raise CheckpointError(
                f"{path} has a module {kind}, which is code of its own, and no code that comes with a model is run. "
                "Take a model of sentence-transformers' own modules."
            )
        if PurePosixPath(place).is_absolute() or ".." in PurePosixPath(place).parts:
            raise CheckpointError(f"{path} has the path {place!r}, which leads out of the folder. Fetch it anew.")
        found.append(_Module(kind.rpartition(".")[2], folder / place))
    if not found:
        raise CheckpointError(f"{path} has no modules. Fetch it anew.")
    return found


def _settings_of(folder: Path, names: Sequence[str] = (hub.CONFIG,)) -> dict[str, Any]:
    """Return a module's settings; none where it has no file of them, as Normalize had none before version 5."""
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    return hub.read_json(path, dict) if path else {}


def _require_settings(folder: Path, settings: Mapping[str, Any], only: Mapping[str, Any]) -> None:
    for key, value in settings.items():
        if value and value != only.get(key):
            wanted = f"only {only[key]!r} is computed" if key in only else "it is none that is computed"
            raise CheckpointError(f"{folder.name or folder} has {key} = {value!r}; {wanted}. Take a model without it.")


def _require_plain(folder: Path, settings: Mapping[str, Any]) -> None:
    others = {key: value for key, value in settings.items() if key not in _OWN_SETTINGS}
    _require_settings(folder, others, _PLAIN_TRANSFORMER)


def _require_tokenizer_fits(folder: Path) -> None:
    side = _side(folder, "truncation")
    if side != "right":
        raise CheckpointError(
            f"the tokenizer has truncation_side = {side!r}; texts that are too long lose their end here. "
            "Set it to 'right', if the model serves you so."
        )
    if _side(folder, "padding") == "left" and hub.read_config(folder).get("model_type") == "bert":
        # The others count positions without padding, or from token to token.
        raise CheckpointError(
            "the tokenizer has padding_side = 'left', by which a text's positions, and with them its vector, "
            "depend on the texts beside it. Set it to 'right', if the model serves you so."
        )


def _side(folder: Path, work: str) -> Any:
    """Return the side of 'truncation' or 'padding': that of tokenizer_config.json, or else of tokenizer.json."""
    path = folder / "tokenizer.json"
    of_file = hub.read_json(path, dict).get(work) if path.is_file() else None
    default = str(of_file.get("direction", "right")).lower() if isinstance(of_file, dict) else "right"
    return _tokenizer_setting(folder, f"{work}_side") or default


def _tokenizer_setting(folder: Path, key: str) -> Any:
    path = folder / "tokenizer_config.json"
    return hub.read_json(path, dict).get(key) if path.is_file() else None


def _kept_width(folder: Path, of_model: Mapping[str, Any]) -> int | None:
    """Return how many numbers of each vector the model keeps; None if all."""
    kept = of_model.get("truncate_dim")
    if kept is None or (isinstance(kept, int) and not isinstance(kept, bool) and kept > 0):
        return kept
    path = folder / hub.SENTENCE_TRANSFORMERS_CONFIG
    raise CheckpointError(f"{path} has truncate_dim = {kept!r}; vectors keep 1 number or more. Correct it.")


def _longest(folder: Path, settings: Mapping[str, Any]) -> int | None:
    lengths = {
        "max_seq_length": settings.get("max_seq_length"),
        "model_max_length": _tokenizer_setting(folder, "model_max_length"),
    }
    key, found = next(((key, value) for key, value in lengths.items() if value is not None), (None, None))
    if found is None:
        return None
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    if not is_number or not found >= MIN_BLOCK_TOKENS or found % 1 != 0:  # infinity % 1 is not a number
        raise CheckpointError(
            f"{folder} has {key} {found!r}; a primary's longest input is a whole number of tokens, {MIN_BLOCK_TOKENS} "
            "or more. Correct it, or take another model."
        )
    return int(found)


def _prompts(folder: Path, of_model: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Return the prompts as the package has them once it is loaded, 'query' and 'document' among them, and notes."""
    found = of_model.get("prompts") or {}
    if not isinstance(found, dict) or not all(isinstance(text, str | None) for text in found.values()):
        path = folder / hub.SENTENCE_TRANSFORMERS_CONFIG
        raise CheckpointError(f"{path} has prompts {found!r}, which are no texts by name. Fetch it anew.")
    prompts = {"query": "", "document": ""} | {name: text or "" for name, text in found.items()}
    if prompts.get("passage") == prompts["document"]:
        del prompts["passage"]
    passed_over = sorted(name for name in ("passage", "corpus") if prompts.get(name) and not prompts["document"])
    notes = [
        f"prompt {name!r} stands before no passage, as encode_document takes 'document' alone; name it so if it should"
        for name in passed_over
    ]
    return prompts, notes


def _pooling(folder: Path, prefix: str, is_normalised: bool) -> tuple[Any, Any]:
    """Return the pooling by our name, and the width of what it pools, which may be normalised at once."""
    settings = _settings_of(folder)
    chosen = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value]
    names: Any = [_OLD_POOLINGS.get(key, key) for key in chosen] or ["mean"]
    if "pooling_mode" in settings:
        modes = settings["pooling_mode"]
        # The package passes over older keys that it knows; one that it does not know still changes what is pooled.
        names = [*(modes if isinstance(modes, list) else [modes]), *(key for key in chosen if key not in _OLD_POOLINGS)]
    if is_normalised and names == ["mean_sqrt_len_tokens"]:  # the mean times a number
        names = ["mean"]
    if len(names) != 1 or not isinstance(names[0], str) or names[0] not in _POOLINGS:
        raise CheckpointError(
            f"{folder / hub.CONFIG} pools by {names}; a task pools by one of {', '.join(_POOLINGS)}. Take a model that "
            "does."
        )
    if prefix and settings.get("include_prompt") is False:
        raise CheckpointError(
            f"{folder / hub.CONFIG} has include_prompt = false: the tokens of the prompt {prefix!r} are not pooled. A "
            "task pools all tokens. Take a model that does."
        )
    return _POOLINGS[names[0]], settings.get("embedding_dimension", settings.get("word_embedding_dimension"))


def _dense(folder: Path, width: int) -> tuple[DenseLayer, dict[str, Tensor]]:
    """Return a dense layer's settings and its tensors."""
    settings = _settings_of(folder)
    places = {key: settings.get(key) for key in (*_SENTENCE, "use_residual")}
    _require_settings(folder, places, _SENTENCE)
    activation = settings.get("activation_function", "torch.nn.modules.activation.Tanh")
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        raise CheckpointError(
            f"{folder / hub.CONFIG} has activation_function = {activation!r}; a task has "
            f"{', '.join(name.rpartition('.')[2] for name in _ACTIVATIONS)}. Take a model with one of these."
        )
    if settings.get("in_features") != width:
        raise CheckpointError(
            f"{folder / hub.CONFIG} has in_features = {settings.get('in_features')}, but what comes in is of width "
            f"{width}. Fetch the folder anew, from one source."
        )
    found = {name.removeprefix("linear."): tensor.float() for name, tensor in hub.read_weights(folder).items()}
    values = {"width": settings.get("out_features"), "bias": settings.get("bias", True)}
    try:
        layer = DenseLayer.model_validate({"kind": "dense", "activation": _ACTIVATIONS[activation], **values})
    except pydantic.ValidationError as error:
        raise CheckpointError(f"{folder / hub.CONFIG} has {values}: no dense layer has. Fetch it anew.") from error
    wanted = {"weight": (layer.width, width)} | ({"bias": (layer.width,)} if layer.bias else {})
    shapes = {name: tuple(tensor.shape) for name, tensor in found.items()}
    if shapes != wanted:
        raise CheckpointError(f"{folder} has tensors {shapes}, not {wanted}. Fetch the folder anew, from one source.")
    if not all(tensor.isfinite().all() for tensor in found.values()):
        raise CheckpointError(f"{folder} has values that are not finite. Fetch it anew, or take another.")
    return layer, found
