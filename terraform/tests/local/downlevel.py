"""Rewrites a copy of the module for provider 3.39.0, the newest that can be had as a file.

    downlevel.py DIRECTORY

Each rewrite has to match, so that one that is no longer needed is noticed.
"""

import pathlib
import re
import sys

BLOCK = r'^resource "{}" [\s\S]*?^}}\n'

REWRITES = [
    # file, what, by what
    ("artifact.tf", r"aws_s3_object", "aws_s3_bucket_object"),
    ("main.tf", r"aws_s3_object", "aws_s3_bucket_object"),
    ("artifact.tf", BLOCK.format("aws_s3_bucket_versioning"), ""),
    ("artifact.tf", BLOCK.format("aws_s3_bucket_lifecycle_configuration"), ""),
    ("main.tf", r'domain( +)= "vpc"', r"vpc\1= true"),
    ("main.tf", r"^ *user_data_replace_on_change.*\n", ""),
    ("main.tf", r"^ *instance_metadata_tags.*\n", ""),
    # 3.39.0 asks for the offerings, and does not tell where they are.
    ("network.tf", r"data\.aws_ec2_instance_type_offerings\.here\[0\]\.locations", "data.aws_availability_zones.here.names"),
    ("readiness.tf", r"^ *wait_for_success_timeout_seconds.*\n", ""),
]


def main(directory):
    for name, pattern, replacement in REWRITES:
        path = pathlib.Path(directory, name)
        text, count = re.subn(pattern, replacement, path.read_text(), flags=re.MULTILINE)
        if count == 0:
            sys.exit(f"{name}: nothing matches {pattern}")
        path.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1])
