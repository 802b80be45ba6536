"""The AWS provider's schema, as far as the module uses it, read out of the bindings that its makers publish for npm.

    provider_schema.py BINDINGS.tgz FILE.tf… > schema.json

The bindings are generated from the provider's own schema and state, for each type, names, types, blocks, what is required
and what is only computed. They are read at test time and no part of them is kept.
"""

import json
import pathlib
import re
import sys
import tarfile

ENTRY = re.compile(
    r'^ +(\w+): \{\s+value: (.*?),\s+isBlock: (true|false),\s+type: "(\w+)",\s+storageClassType: "(\w+)",', re.MULTILINE
)
COMPUTED = re.compile(r"^    // (\w+) - computed: true, optional: false, required: false\n(.*?)\n    }", re.MULTILINE | re.DOTALL)
SIMPLE = {"string": "string", "number": "number", "boolean": "bool"}


def used(files):
    """(kind, type) of all resources and data sources in `files`."""
    text = "\n".join(pathlib.Path(file).read_text() for file in files)
    return sorted(set(re.findall(r'^(resource|data) "(aws_\w+)"', text, re.MULTILINE)))


def folder(kind, name):
    path = name.removeprefix("aws_").replace("_", "-")
    return f"data-aws-{path}" if kind == "data" else path


def type_of(entry, storage):
    """Terraform's type, as JSON."""
    inner = SIMPLE.get(storage.removesuffix("List").removesuffix("Map"))
    if entry == "simple":
        return SIMPLE[storage]
    return [entry, inner or "dynamic"]


def camel(name):
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def required(interfaces, owner, name):
    body = re.search(rf"^export interface {owner} .*?\n}}", interfaces, re.MULTILINE | re.DOTALL)
    return bool(body and re.search(rf"^    readonly {camel(name)}: ", body.group(), re.MULTILINE | re.IGNORECASE))


def block(code, interfaces, attributes, owner):
    """The schema of a block whose entries are in `attributes`."""
    schema = {"attributes": {}, "blocks": {}}
    for name, value, is_block, entry, storage in ENTRY.findall(attributes):
        if is_block == "false":
            needed = required(interfaces, owner, name)
            schema["attributes"][name] = {"type": type_of(entry, storage), "required": needed, "optional": not needed}
            continue
        function = re.search(r"(\w+)ToHclTerraform", value).group(1)
        body = re.search(rf"^function {function}ToHclTerraform\(.*?^}}", code, re.MULTILINE | re.DOTALL).group()
        inner = block(code, interfaces, body, function[0].upper() + function[1:])
        is_many = "listMapperHcl" in value
        nesting = "single" if entry == "struct" else entry
        schema["blocks"][name] = {"nesting": nesting, "many": is_many, "block": inner}
    return schema


def computed(code):
    """What only AWS says: attributes of the outermost block."""
    own = code[code.rindex("cdktf.TerraformResource {") if "cdktf.TerraformResource {" in code else code.rindex("cdktf.TerraformDataSource {") :]
    found = {}
    for name, rest in COMPUTED.findall(own):
        method = re.search(r"this\.get(\w+)Attribute\(", rest)
        simple = {"String": "string", "Number": "number", "List": ["list", "string"], "NumberList": ["list", "number"]}
        kind = simple.get(method.group(1)) if method else None
        if "getBooleanAttribute" in rest:
            kind = "bool"
        found[name] = {"type": kind or "dynamic", "computed": True}
    return found


def schema_of(code, interfaces, class_name):
    body = re.search(r"synthesizeHclAttributes\(\) \{.*?\n    }", code, re.DOTALL).group()
    schema = block(code, interfaces, body, f"{class_name}Config")
    # Whether it is also computed can't be seen here: said so of all that are optional, so that a mock can fill them in.
    for attribute in schema["attributes"].values():
        attribute["computed"] = attribute["optional"]
    schema["attributes"].update(computed(code))
    return schema


def main(bindings, files):
    wanted = {folder(*each): each for each in used(files)}
    texts = {}
    with tarfile.open(bindings) as archive:
        for member in archive:
            parts = member.name.split("/")
            if len(parts) == 4 and parts[1] == "lib" and parts[2] in [*wanted, "provider"] and parts[3] in ("index.js", "index.d.ts"):
                texts[parts[2], parts[3]] = archive.extractfile(member).read().decode()
            elif member.name == "package/package.json":
                version = json.load(archive.extractfile(member))["cdktf"]["provider"]["version"]
    schemas = {"version": version, "resource": {}, "data": {}}
    for place, (kind, name) in wanted.items():
        if (place, "index.js") not in texts:
            sys.exit(f"{version} has no {kind} {name}")
        code = texts[place, "index.js"]
        class_name = re.findall(r"^class (\w+) extends cdktf\.Terraform(?:Resource|DataSource)", code, re.MULTILINE)[-1]
        schemas[kind][name] = schema_of(code, texts[place, "index.d.ts"], class_name)
    code = texts["provider", "index.js"]
    body = re.search(r"synthesizeHclAttributes\(\) \{.*?\n    }", code, re.DOTALL).group()
    schemas["provider"] = block(code, texts["provider", "index.d.ts"], body, "AwsProviderConfig")
    json.dump(schemas, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
