"""Makes the site: README and the pages of docs/, the API, the examples, the picker and the notebook.

    python docs/make_site.py [DIR]        from: pip install -e '.[site]'; into build/site unless DIR is given

It gathers the pages in DIR/source and rewrites the links between them. Then mkdocs builds them into DIR/html.
site_api.py turns names in the API's pages into links.
A link that leads nowhere is an error. Nothing needs a network.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from latex2mathml.converter import convert
from site_api import finish

import onsoftmax as ons

ROOT = Path(__file__).parent.parent
# The place of each page of the checkout on the site.
PAGES = {
    "README.md": "index.md",
    "docs/contract.md": "contract.md",
    "docs/examples.md": "examples.md",
    "docs/in-a-training-loop.md": "in-a-training-loop.md",
    "docs/log-probabilities.md": "log-probabilities.md",
    "docs/routers.md": "routers.md",
    "docs/sampling.md": "sampling.md",
    "docs/rows-over-gpus.md": "rows-over-gpus.md",
    "docs/larger-than-memory.md": "larger-than-memory.md",
    "docs/performance.md": "performance.md",
    "docs/tools.md": "tools.md",
    "docs/how-it-works.md": "how-it-works.md",
    "docs/building.md": "building.md",
    "benchmarks/README.md": "benchmarks.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
PROGRAMS = {f"examples/{path.name}": f"examples/{path.stem}.md" for path in ROOT.glob("examples/*.py")}
# Files that the pages link to. They keep their names.
FILES = ["docs/pictures", "docs/picker.html", "benchmarks/results"]
# All public names. Each has a page.
API = {
    "Functions": ["softmax", "log_softmax", "logsumexp", "softmax_backward", "log_softmax_backward"],
    "The loss": ["cross_entropy", "cross_entropy_with_grad"],
    "Log-probabilities": ["logprob", "LogProb"],
    "Divergences": ["kl_divergence", "kl_divergence_with_grad", "js_divergence", "js_divergence_with_grad"],
    "Routers": ["route", "Route"],
    "Samplers": ["sample", "filtered_softmax"],
    "The k largest": ["softmax_topk", "TopK", "TopKWithNormalizer"],
    "Rows in parts": ["normalizer", "Normalizer"],
    "Looking at it": [
        "explain",
        "Trace",
        "Step",
        "plan",
        "Plan",
        "PlanStep",
        "Cost",
        "Cliff",
        "methods",
        "Method",
    ],
    "Settings": [
        "set_num_threads",
        "get_num_threads",
        "set_batch_invariant",
        "get_batch_invariant",
        "show_config",
        "DeviceArray",
    ],
}
# Modules, whose public names have pages too. A module has none if its library is not installed.
MODULES = {
    "In a training loop": "torch",
    "Inside JAX": "jax",
    "Rows over GPUs": "distributed",
    "Larger than memory": "dask",
}
CONFIG = """
site_name: onsoftmax
site_description: Softmax at the speed of memory, with every algorithm under its own name
docs_dir: source
site_dir: html
strict: true
theme:
  name: material
  font: false
  features: [navigation.sections, navigation.footer, navigation.indexes, content.code.copy, toc.integrate]
  palette:
    - media: "(prefers-color-scheme: light)"
      scheme: default
      toggle: {icon: material/weather-night, name: dark}
    - media: "(prefers-color-scheme: dark)"
      scheme: slate
      toggle: {icon: material/weather-sunny, name: light}
extra_css: [site.css]
markdown_extensions: [tables, pymdownx.highlight, pymdownx.superfences, attr_list, md_in_html, toc]
validation: {links: {not_found: warn, anchors: warn, unrecognized_links: warn, absolute_links: warn}}
plugins:
  - search
  - mkdocs-jupyter: {execute: false, include_source: true, ignore_h1_titles: true, cache: false}
  - mkdocstrings:
      handlers:
        python:
          options:
            docstring_style: numpy
            docstring_section_style: list
            inherited_members: true
            members_order: source
            show_bases: false
            show_labels: false
            show_overloads: false
            show_root_heading: true
            show_root_full_path: false
            show_source: false
            heading_level: 1
            separate_signature: true
            line_length: 42
            filters: ["!^_"]
nav:
  - Start: index.md
  - Contract: contract.md
  - API: [api/index.md]
  - Examples: [examples.md]
  - In a training loop: in-a-training-loop.md
  - Log-probabilities: log-probabilities.md
  - Routers: routers.md
  - Sampling: sampling.md
  - Rows over GPUs: rows-over-gpus.md
  - Larger than memory: larger-than-memory.md
  - Performance: performance.md
  - Tools: tools.md
  - How it works: how-it-works.md
  - Notebook: notebook.ipynb
  - Picker: picker.md
  - Building: building.md
  - Benchmarks: benchmarks.md
  - Contributing: contributing.md
  - Changes: changelog.md
"""

# A field of a class has its name and its text. Its signature would say the name again.
CSS = """
.doc-attribute > .doc-signature { display: none }
.md-typeset .doc-attribute > .doc-heading { font: bold 0.75rem monospace; margin: 1.2em 0 0.3em }
"""


def moved(text: str, page: str, source: Path) -> str:
    """A page's text with its links rewritten for the site. Code of the checkout is named, not linked."""
    here = Path(page).parent

    def target(link: str) -> str | None:
        path, _, anchor = link.partition("#")
        if not path or "://" in path:
            return link
        place = os.path.normpath(here / path)
        anchor = f"#{anchor}" if anchor else ""
        if place in PAGES or place in PROGRAMS:
            return (PAGES | PROGRAMS)[place] + anchor
        if place == "docs/onsoftmax.ipynb":
            return "notebook.ipynb"
        if place == "docs/picker.html":
            return "picker.md"
        name = place.removeprefix("docs/")
        return name + anchor if (source / name).exists() else None

    def replace(match: re.Match[str]) -> str:
        link = target(match[2])
        return f"{match[1]}({link})" if link else match[1].lstrip("!")[1:-1]

    text = re.sub(r"(!?\[[^\]]*\])\(([^)\s]+)\)", replace, text)
    return re.sub(r'((?:src|srcset)=")docs/', r"\1", text)


def program(path: Path) -> str:
    """The page of an example: its docstring, then its code."""
    _, docstring, code = path.read_text().split('"""', 2)
    title, _, text = docstring.partition("\n")
    return f"# {title.removesuffix('.')}\n{text}\n```python\n{code.strip()}\n```\n"


def with_mathml(text: str) -> str:
    """The text with its formulas in MathML, which browsers show. MathJax would need a network."""
    text = re.sub(r"\$\$(.+?)\$\$", lambda found: convert(found[1], display="block"), text, flags=re.S)
    return re.sub(r"\$(.+?)\$", lambda found: convert(found[1]), text, flags=re.S)


def names_of(module: str) -> list[str]:
    """A module's public names. None if its library is not installed."""
    try:
        return [f"{module}.{name}" for name in importlib.import_module(f"onsoftmax.{module}").__all__]
    except ImportError as error:
        print(f"{module} has no page: {error}")
        return []


def api() -> dict[str, list[str]]:
    """{section of the API: its names}"""
    listed = [name for names in API.values() for name in names]
    missing = {*ons.__all__} ^ {*listed}
    if missing:
        raise SystemExit(
            f"docs/make_site.py: API and onsoftmax.__all__ differ in {', '.join(sorted(missing))}"
        )
    found = {title: names_of(module) for title, module in MODULES.items()}
    return API | {title: names for title, names in found.items() if names}


def summary(name: str) -> str:
    """The first sentence of a docstring."""
    documented = functools.reduce(getattr, name.split("."), ons)
    return " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())


def write_api(sections: dict[str, list[str]], to: Path) -> None:
    """Writes a page for each name, with links to its section's other names, and a page that lists all."""
    to.mkdir()
    index = ["# API\n"]
    for title, names in sections.items():
        index.append(f"\n## {title}\n\n| name | what it is |\n| --- | --- |")
        for name in names:
            index.append(f"| [{name}]({name}.md) | {summary(name)} |")
            others = ", ".join(f"[{other}]({other}.md)" for other in names if other != name)
            (to / f"{name}.md").write_text(
                f"::: onsoftmax.{name}\n    options: {{heading: {name}}}\n\n**{title}:** {others}.\n"
            )
    (to / "index.md").write_text("\n".join(index) + "\n")


def gather(sections: dict[str, list[str]], source: Path) -> None:
    """Gathers all pages and files of the site for mkdocs."""
    for name in FILES:
        to = source / name.removeprefix("docs/")
        to.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, to)
    for page, to in PAGES.items():
        (source / to).write_text(moved((ROOT / page).read_text(), page, source))
    (source / "examples").mkdir()
    for path, to in PROGRAMS.items():
        (source / to).write_text(program(ROOT / path))
    picker = source / "picker.html"
    picker.write_text(picker.read_text().replace('href="../README.md"', 'href="index.html" target="_top"'))
    (source / "site.css").write_text(CSS)
    write_api(sections, source / "api")
    (source / "picker.md").write_text(
        '# The picker\n\n<iframe src="../picker.html" style="width: 100%; height: 80vh; border: 0" '
        'title="Which softmax runs on your rows?"></iframe>\n\n[On a page of its own](picker.html)\n'
    )
    notebook = json.loads((ROOT / "docs" / "onsoftmax.ipynb").read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = with_mathml("".join(cell["source"]))
    (source / "notebook.ipynb").write_text(json.dumps(notebook))


def main() -> int:
    place = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site").resolve()
    shutil.rmtree(place, ignore_errors=True)
    (place / "source").mkdir(parents=True)
    sections = api()
    gather(sections, place / "source")
    programs = [{Path(page).stem.replace("_", " ").capitalize(): page} for page in sorted(PROGRAMS.values())]
    pages = [{title: [{name: f"api/{name}.md"} for name in names]} for title, names in sections.items()]
    config = CONFIG.replace("[examples.md]", json.dumps([{"All": "examples.md"}, *programs]))
    config = config.replace("[api/index.md]", json.dumps(["api/index.md", *pages]))
    (place / "mkdocs.yml").write_text(config)
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-f", str(place / "mkdocs.yml")]
    code = subprocess.run(command, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}).returncode
    if code == 0:
        finish(place / "html" / "api")
    return code


if __name__ == "__main__":
    sys.exit(main())
