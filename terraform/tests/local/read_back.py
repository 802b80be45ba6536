"""What AWS has after an apply, asked by another client than Terraform.

    read_back.py URL put-secret NAME VALUE
    read_back.py URL check                 after an apply with the defaults
    read_back.py URL setting PATH VALUE    of the gateway, as the instance would fetch it
    read_back.py URL user-data [--packed]  as cloud-init would unpack them, or as EC2 has them
    read_back.py URL metrics [INSTANCE]    names of those that were published, and that each is that instance's
    read_back.py URL nothing-left          after a destroy
"""

import base64
import fnmatch
import gzip
import json
import sys

import boto3

NAME = "bifrost"


def client(service):
    return boto3.client(service, endpoint_url=url, region_name="us-east-1")


def instances():
    found = client("ec2").describe_instances(Filters=[{"Name": "instance-state-name", "Values": ["running"]}])
    return [instance for reservation in found["Reservations"] for instance in reservation["Instances"]]


def parameter():
    return json.loads(client("ssm").get_parameter(Name=f"/{NAME}/settings")["Parameter"]["Value"])


def user_data():
    (instance,) = instances()
    found = client("ec2").describe_instance_attribute(InstanceId=instance["InstanceId"], Attribute="userData")
    return base64.b64decode(found["UserData"]["Value"])


def same(what, found, expected):
    assert found == expected, f"{what}: {found!r}, not {expected!r}"


def listed(value):
    return [value] if isinstance(value, str) else value


def role_statements(iam, role):
    """Every statement of every policy that the role has, whether its own or AWS's, by Sid."""
    documents = [iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
                 for name in iam.list_role_policies(RoleName=role)["PolicyNames"]]
    for attached in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
        version = iam.get_policy(PolicyArn=attached["PolicyArn"])["Policy"]["DefaultVersionId"]
        found = iam.get_policy_version(PolicyArn=attached["PolicyArn"], VersionId=version)["PolicyVersion"]
        documents.append(found["Document"])
    statements = [each for document in documents for each in document["Statement"]]
    return {each.get("Sid", f"unnamed-{place}"): each for place, each in enumerate(statements)}


def may(statement, *actions):
    """Whether it allows one of `actions`, itself or by a pattern."""
    patterns = listed(statement["Action"])
    return statement["Effect"] == "Allow" and any(fnmatch.fnmatchcase(action, pattern) for action in actions for pattern in patterns)


def check():
    ec2 = client("ec2")
    (instance,) = instances()
    id = instance["InstanceId"]
    same("type", instance["InstanceType"], "t3.medium")
    same("IMDS tokens", instance["MetadataOptions"]["HttpTokens"], "required")
    same("IMDS hops", instance["MetadataOptions"]["HttpPutResponseHopLimit"], 1)
    same("detailed monitoring", instance["Monitoring"]["State"], "enabled")
    same("EBS-optimised", instance["EbsOptimized"], True)
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    same("tags", tags, {"bifrost-credit-mode": "unlimited", "Project": "bifrost", "Name": NAME})
    (credits,) = ec2.describe_instance_credit_specifications(InstanceIds=[id])["InstanceCreditSpecifications"]
    same("credits", credits["CpuCredits"], "unlimited")

    (volume,) = ec2.describe_volumes(Filters=[{"Name": "attachment.instance-id", "Values": [id]}])["Volumes"]
    same("volume", (volume["VolumeType"], volume["Size"], volume["Encrypted"]), ("gp3", 16, True))

    ids = [group["GroupId"] for group in instance["SecurityGroups"]]
    (group,) = ec2.describe_security_groups(GroupIds=ids)["SecurityGroups"]
    same("open ports", group["IpPermissions"], [])
    same("reachable ports", [(rule["FromPort"], rule["ToPort"]) for rule in group["IpPermissionsEgress"]], [(443, 443)])

    (address,) = ec2.describe_addresses()["Addresses"]
    same("address", (address["Domain"], address["InstanceId"]), ("vpc", id))

    iam = client("iam")
    (role,) = [role["RoleName"] for role in iam.list_roles()["Roles"] if role["RoleName"].startswith(NAME)]
    statements = role_statements(iam, role)
    same("statements", sorted(statements), ["Agent", "Artifacts", "Commands", "Metrics", "Parameters", "Sessions"])
    reads = {sid for sid, each in statements.items() if may(each, "ssm:GetParameter", "ssm:GetParameters", "kms:Decrypt")}
    same("what lets it read parameters", reads, {"Parameters"})
    names = [arn.split(":parameter")[1] for arn in statements["Parameters"]["Resource"]]
    same("parameters", sorted(names), ["/bifrost/openai", "/bifrost/settings"])
    same("its actions", {sid: statements[sid]["Action"] for sid in ("Parameters", "Artifacts", "Metrics")},
         {"Parameters": "ssm:GetParameters", "Artifacts": "s3:GetObject", "Metrics": "cloudwatch:PutMetricData"})
    same("namespace", statements["Metrics"]["Condition"], {"StringEquals": {"cloudwatch:namespace": ["Bifrost/bifrost"]}})

    alarms = client("cloudwatch").describe_alarms()["MetricAlarms"]
    names = sorted(alarm["AlarmName"].removeprefix(f"{NAME}-") for alarm in alarms)
    same("alarms", names, ["charged", "cpu", "hardware", "load", "memory", "network-in", "network-out", "queue-wait",
                           "reachable", "surplus"])
    for alarm in alarms:
        same(alarm["AlarmName"], alarm["Dimensions"], [{"Name": "InstanceId", "Value": id}])
    body = client("cloudwatch").get_dashboard(DashboardName=NAME)["DashboardBody"]
    same("widgets", len(json.loads(body)["widgets"]), 6)

    s3 = client("s3")
    (bucket,) = [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
    same("public access", set(s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"].values()), {True})
    (bundle,) = [each for each in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    files = json.loads(gzip.decompress(s3.get_object(Bucket=bucket, Key=bundle["Key"])["Body"].read()))
    assert {"Cargo.lock", "gateway/src/main.rs", "monitor/src/main.rs", ".cargo/config.toml"} <= set(files), sorted(files)

    wanted = parameter()
    same("variables", wanted["variables"], {"OPENAI_API_KEY": "/bifrost/openai"})
    same("where it listens", wanted["settings"]["server"]["listen"], "127.0.0.1:8080")

    packed = user_data()
    text = gzip.decompress(packed).decode()
    assert text.startswith("#cloud-config\n"), text[:40]
    assert "sk-proj" not in text, "a secret in the user data"
    assert bundle["Key"] in text, "the instance looks for another bundle"
    assert len(packed) <= 16 * 1024
    print(f"read back: as it should be; {len(files)} files, bundle {bundle['Size']} B, user data {len(packed)} of 16,384 B")


def setting(path, value):
    found = parameter()["settings"]
    for name in path.split("."):
        found = found[name]
    same(path, json.dumps(found), value)


def nothing_left():
    same("instances", instances(), [])
    same("addresses", client("ec2").describe_addresses()["Addresses"], [])
    same("alarms", client("cloudwatch").describe_alarms()["MetricAlarms"], [])
    same("buckets", client("s3").list_buckets()["Buckets"], [])
    iam = client("iam")
    same("roles", [role["RoleName"] for role in iam.list_roles()["Roles"]], [])
    same("instance profiles", iam.list_instance_profiles()["InstanceProfiles"], [])
    same("VPCs", client("ec2").describe_vpcs(Filters=[{"Name": "is-default", "Values": ["false"]}])["Vpcs"], [])
    groups = client("ec2").describe_security_groups()["SecurityGroups"]
    same("security groups", [group["GroupName"] for group in groups if group["GroupName"] != "default"], [])
    same("dashboards", client("cloudwatch").list_dashboards()["DashboardEntries"], [])
    same("associations", client("ssm").list_associations()["Associations"], [])
    names = [each["Name"] for each in client("ssm").describe_parameters()["Parameters"]]
    same("parameters", [name for name in names if name.startswith("/bifrost")], ["/bifrost/openai"])


url, task, *rest = sys.argv[1:]
if task == "put-secret":
    client("ssm").put_parameter(Name=rest[0], Value=rest[1], Type="SecureString", Overwrite=True)
elif task == "check":
    check()
elif task == "setting":
    setting(*rest)
elif task == "metrics":
    found = client("cloudwatch").list_metrics(Namespace=f"Bifrost/{NAME}")["Metrics"]
    for metric in found if rest else []:
        same("dimensions", metric["Dimensions"], [{"Name": "InstanceId", "Value": rest[0]}])
    print(*sorted({metric["MetricName"] for metric in found}))
elif task == "user-data" and rest == ["--packed"]:
    sys.stdout.buffer.write(user_data())
elif task == "user-data":
    print(gzip.decompress(user_data()).decode(), end="")
elif task == "nothing-left":
    nothing_left()
else:
    sys.exit(__doc__)
