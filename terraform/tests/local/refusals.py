"""Every validation refuses what it is for, with its own message; and there is none that is not tried.

    refusals.py MODULE    a module that has been initialised
"""

import pathlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

KEYS = 'secret_parameters={ OPENAI_API_KEY = "/bifrost/openai" }'
TLS = 'tls={ certificate_parameter = "/a/c", key_parameter = "/a/k" }'
CLIENTS = "client_keys_parameter=/bifrost/clients"
DIGEST = "0" * 64


def release(url="https://example.com/b.tar.gz", sha256=DIGEST):
    return f'release={{ url = "{url}", sha256 = "{sha256}" }}'


def provider(setting):
    return f"settings={{ providers = {{ a = {{ {setting} }} }} }}"


def opened(*blocks):
    listed = ", ".join(f'"{block}"' for block in blocks)
    return [f"allowed_cidr_blocks=[{listed}]", TLS, CLIENTS]


ROWS = [
    # how the message begins, and what is refused with it
    ("region has to be", ["region=europe"]),
    ("name has to be", ["name=Bifrost"]),
    ("name has to be", ["name=bifrost-with-a-long-name"]),
    ("tags may neither", ['tags={ "aws:team" = "ml" }']),
    ("tags may neither", ['tags={ bifrost-credit-mode = "standard" }']),
    ("tags may be named", ['tags={ "cost/center" = "1" }']),
    ("instance_type has to be", ["instance_type=medium"]),
    ("instance_type names an arm64", ["instance_type=t4g.medium"]),
    ("instance_type names an arm64", ["instance_type=c7gn.large"]),
    ("instance_type names an arm64", ["instance_type=a1.large"]),
    ("instance_type has less than", ["instance_type=t3.micro"]),
    ("instance_type is of a generation", ["instance_type=t2.medium"]),
    ("instance_type is of a generation", ["instance_type=m4.large"]),
    ("instance_type is of a generation", ["instance_type=mac2.metal"]),
    ("cpu_credits has to be", ["cpu_credits=none"]),
    ("ami_id has to be", ["ami_id=ami-123"]),
    ("root_volume_gb has to be", ["root_volume_gb=4"]),
    ("vpc_cidr has to be", ["vpc_cidr=10.0.0.0/8"]),
    ("vpc_cidr has to be", ["vpc_cidr=10.0.0.0"]),
    ("subnet_id has to be", ["subnet_id=subnet"]),
    ("public_address = false needs", ["public_address=false"]),
    ("port has to be", ["port=80"]),
    ("port has to be", ["port=8081"]),
    ("port has to be", ["port=10240"]),
    ("allowed_cidr_blocks has to be", opened("203.0.113.7")),
    ("allowed_cidr_blocks would open", opened("0.0.0.0/0")),
    ("allowed_cidr_blocks would open", opened("0.0.0.0/1", "128.0.0.0/1")),
    ("allowed_cidr_blocks would open", opened("::/0")),
    ("allowed_cidr_blocks would open", opened("0::0/0")),
    ("allowed_cidr_blocks would open", opened("2000::/3")),
    ("allowed_cidr_blocks would open", opened("203.0.113.0/00")),
    ("allowed_cidr_blocks has IPv6", opened("2001:db8::/48")),
    ("allowed_cidr_blocks needs client_keys_parameter", ['allowed_cidr_blocks=["203.0.113.0/24"]', TLS]),
    ("allowed_cidr_blocks needs tls", ['allowed_cidr_blocks=["203.0.113.0/24"]', CLIENTS]),
    ("egress_ports has to be", ["egress_ports=[70000]"]),
    ("secret_parameters has to name environment", ['secret_parameters={ openai-key = "/bifrost/openai" }']),
    ("secret_parameters must not set", ['secret_parameters={ LD_PRELOAD = "/bifrost/openai" }']),
    ("secret_parameters must not set", ['secret_parameters={ BIFROST_CLIENT_KEYS = "/bifrost/openai" }']),
    ("secret_parameters must not set", ['secret_parameters={ BIFROST_LOG__LEVEL = "/bifrost/openai" }']),
    ("secret_parameters has to name SSM", ['secret_parameters={ OPENAI_API_KEY = "bifrost/openai" }']),
    ("secret_parameters has to name SSM", ['secret_parameters={ OPENAI_API_KEY = "sk-proj-abc" }']),
    ("client_keys_parameter has to name", ["client_keys_parameter=clients"]),
    ("tls has to name", ['tls={ certificate_parameter = "/a/c", key_parameter = "k" }']),
    ("kms_key_arn has to be", ["kms_key_arn=arn:aws:kms:us-east-1:123456789012:alias/mine"]),
    ("settings has to be an object", ["settings=5"]),
    ("settings must not hold keys:", [provider('keys = [{ value = "sk-abc" }]')]),
    ("settings must not hold keys:", [provider('keys = [{ name = "a", value_file = "/f" }, { value = "sk-abc" }]')]),
    ("settings must not hold keys:", [provider('keys = { value = "sk-abc", weight = 1 }')]),
    ("settings must not hold keys:", [provider('keys = { main = { value = "sk-abc" } }')]),
    ("settings must not hold keys:", [provider('keys = { main = "sk-abc" }')]),
    ("settings must not hold keys:", [provider('keys = ["env.A", "sk-abc"]')]),
    ("settings must not hold keys:", [provider('keys = "env.A,sk-abc"')]),
    ("settings must not hold keys:", [provider('keys = "sk-abc"')]),
    ("settings must not hold keys:", [provider('keys = [{ secret = "sk-abc" }]')]),
    ("settings must not hold keys:", ['settings={ client_keys = "abc" }']),
    ("settings must not hold keys:", ['settings={ client_keys = ["abc"] }']),
    ("settings must not hold keys:", ['settings={ admin_key = "abc" }']),
    ("settings must not hold keys:", ['settings={ admin = { keys = ["abc"] } }']),
    ("settings must not hold keys in headers", [provider('headers = { authorization = "Bearer sk-abc" }')]),
    ("settings must not hold keys in headers", [provider('headers = { X-Api-Key = "sk-abc" }')]),
    ("settings must not hold a password", [provider('proxy = "http://u:p@proxy:3128"')]),
    ("settings must not hold a password", [provider('base_url = "https://u:p@example.com/v1"')]),
    ("settings must not set", ['settings={ server = { listen = "0.0.0.0:80" } }']),
    ("settings must not set", ['settings={ telemetry = { segment = "/tmp" } }']),
    ("settings must not set", ['settings={ telemetry = { readers = "owner" } }']),
    ("drain_timeout_seconds has to be", ["drain_timeout_seconds=0"]),
    ("drain_timeout_seconds has to be", ["drain_timeout_seconds=601"]),
    ("binary_directory has to hold", ["binary_directory=/nonexistent"]),
    ("release.url has to begin", [release(url="http://example.com/b.tar.gz")]),
    ("release.url has to begin", [release(url="https://example.com/'b")]),
    ("release.url has to begin", [release(url="https://user:token@example.com/b.tar.gz")]),
    ("release.sha256 has to be", [release(sha256="abc")]),
    ("release and binary_directory say", [release(), "binary_directory=./tests/local/programs"]),
    ("rustup_url has to begin", ["rustup_url=http://example.com/rustup.sh"]),
    ("alarm_topic_arns has to be", ['alarm_topic_arns=["alarms"]']),
]


def messages(module):
    found = re.findall(r'validation \{.*?error_message = "((?:[^"\\]|\\.)*)"', (module / "variables.tf").read_text(), re.DOTALL)
    return [message.replace('\\"', '"') for message in found]


def said(module, values):
    command = ["terraform", "plan", "-no-color", "-input=false", "-lock=false", "-refresh=false"]
    for value in values if any(value.startswith("secret_parameters") for value in values) else [*values, KEYS]:
        command += ["-var", value]
    done = subprocess.run(command, cwd=module, capture_output=True, text=True)
    # As Terraform prints them, messages are broken into lines within a frame.
    return " ".join(re.sub(r"[│╷╵]", " ", done.stderr).split())


def main(module):
    known = messages(module)
    failed = []
    with ThreadPoolExecutor(2) as pool:
        for (begins, values), answer in zip(ROWS, pool.map(lambda row: said(module, row[1]), ROWS)):
            whole = [message for message in known if message.startswith(begins)]
            if len(whole) != 1:
                failed.append(f"{begins!r} begins {len(whole)} messages")
            elif whole[0] not in answer:
                failed.append(f"{values} is not refused with {whole[0]!r}: {answer[:600]}")
    untried = [message for message in known if not any(message.startswith(begins) for begins, _ in ROWS)]
    failed += [f"nothing tries {message!r}" for message in untried]
    print("\n".join(failed))
    print(f"refusals: {len(ROWS) - len(failed)} of {len(ROWS)} as they should be, of {len(known)} validations")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
