"""Templates of `jinja_cases.py`, rendered by Jinja2 as transformers sets it up: texts, or that they are refused."""
import datetime

import jinja2
from jinja_cases import CASES, INPUT, WHITESPACE
from transformers.utils import chat_template_utils

NOW = datetime.datetime(2026, 2, 3, 14, 5, 9)


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def outcome(template, values):
    try:
        return {"text": chat_template_utils._compile_jinja_template(template).render(**values)}
    except jinja2.exceptions.TemplateError as error:
        return {"refused": str(error)}
    except (TypeError, ValueError, ArithmeticError, LookupError, AssertionError, AttributeError, RuntimeError,
            SyntaxError):
        return {"refused": ""}  # in words that are Python's own


def generate(oracle):
    chat_template_utils.datetime = Clock
    templates = [(group, line) for group, text in CASES.items() for line in text.strip("\n").split("\n")]
    templates += [("white space", template) for template in WHITESPACE]
    oracle.data["now"] = NOW.isoformat()
    oracle.data["jinja2"] = jinja2.__version__
    oracle.data["input"] = INPUT
    oracle.data["cases"] = [{"group": group, "template": template, **outcome(template, INPUT)} for group, template in templates]

