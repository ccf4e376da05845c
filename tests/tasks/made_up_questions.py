"""Questions that the tests make themselves, in several scripts, and a tokenizer whose pieces cover them."""

from pathlib import Path

from lingraft.config.encoder import EncoderShape, Family
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.tasks.squad import Answer, Question
from tests.huggingface.scripts import trained

SHAPE = EncoderShape(width=32, layers=2, attention_heads=2, mlm_heads=(2,), block_tokens=32)
BERT_SHAPE = SHAPE.model_copy(update={"family": Family(separators=1, segments=2)})
LINES = (
    "The old mill by the river grinds wheat in autumn and rye in winter.",
    "Die alte Mühle am Fluss mahlt im Herbst Weizen und im Winter Roggen.",
    "El viejo molino junto al río muele trigo en otoño y centeno en invierno.",
    "تطحن المطحنة القديمة قرب النهر القمح في الخريف والشعير في الشتاء.",
    "नदी के पास की पुरानी चक्की पतझड़ में गेहूँ और सर्दी में राई पीसती है।",
    "Cối xay cũ bên sông xay lúa mì vào mùa thu và lúa mạch vào mùa đông.",
    "河边的老磨坊秋天磨小麦，冬天磨黑麦。",
    "โรงสีเก่าริมแม่น้ำบดข้าวสาลีในฤดูใบไม้ร่วงและบดข้าวไรย์ในฤดูหนาว",
)


def tokenizer(folder: Path) -> Tokenizer:
    """A tokenizer with lingraft's special ids, over the characters of `LINES`."""
    return trained([*LINES], folder, 400, "en")


def ask(context: str, *answers: str, question: str = "what", name: str = "q1") -> Question:
    """A question whose answers are the first passages of the context that read so."""
    return Question(name, context, question, tuple(Answer(text, context.index(text)) for text in answers))
