"""The README's tables are the code's: every variable and output, as they are described there.

    documents.py MODULE [--write]
"""

import pathlib
import re
import sys

FIELD = r'^  {} += (.*)$'


def blocks(text, kind):
    for name, body in re.findall(rf'^{kind} "(\w+)" {{\n(.*?)^}}', text, re.MULTILINE | re.DOTALL):
        yield name, body


def field(body, name):
    found = re.search(FIELD.format(name), body, re.MULTILINE)
    return found and found.group(1)


def plain(text):
    return text.strip('"').replace('\\"', '"').replace("|", "\\|")


def variables(module):
    rows = []
    for name, body in blocks((module / "variables.tf").read_text(), "variable"):
        kind, description, default = (field(body, each) for each in ("type", "description", "default"))
        assert kind and description, f"variable {name} has no type or no description"
        default = "required" if default is None else f"`{default}`"
        rows.append(f"| `{name}` | {'object' if kind.startswith('object') else kind} | {default} | {plain(description)} |")
    return rows


def outputs(module):
    rows = []
    for name, body in blocks((module / "outputs.tf").read_text(), "output"):
        assert field(body, "description"), f"output {name} has no description"
        rows.append(f"| `{name}` | {plain(field(body, 'description'))} |")
    return rows


def with_rows(text, heading, rows):
    """`text` with `rows` in the table below `heading`."""
    pattern = rf"(^## {heading}\n\n\|[^\n]*\n\|[-|]*\n)((?:\|[^\n]*\n)*)"
    new, count = re.subn(pattern, lambda found: found.group(1) + "".join(row + "\n" for row in rows), text, flags=re.MULTILINE)
    assert count == 1, f"no table below {heading}"
    return new


def used(module):
    """Every variable is used somewhere."""
    code = "".join(path.read_text() for path in module.glob("*.tf") if path.name != "variables.tf")
    for name, _ in blocks((module / "variables.tf").read_text(), "variable"):
        assert re.search(rf"\bvar\.{name}\b", code), f"nothing uses variable {name}"


def tests_assert(module):
    """No run without an assertion or an expected failure."""
    for path in module.glob("tests/*.tftest.hcl"):
        for name, body in blocks(path.read_text(), "run"):
            assert "assert {" in body or "expect_failures" in body, f"{path.name}: run {name} proves nothing"


def main(module, write):
    readme = module / "README.md"
    text = readme.read_text()
    wanted = with_rows(with_rows(text, "Variables", variables(module)), "Outputs", outputs(module))
    used(module)
    tests_assert(module)
    if write:
        readme.write_text(wanted)
    elif text != wanted:
        sys.exit("README.md is not in step with the code: run documents.py MODULE --write")
    print(f"{len(variables(module))} variables and {len(outputs(module))} outputs, as the README has them")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), "--write" in sys.argv)
