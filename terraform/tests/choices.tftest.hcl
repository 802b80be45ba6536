# What the variables change.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  secret_parameters = { OPENAI_API_KEY = "/bifrost/openai" }
}

run "source" {
  command = apply

  assert {
    condition     = startswith(aws_s3_object.source["artifacts"].key, "source/") && strcontains(local.files["/etc/bifrost/boot.env"].text, "DELIVERY='source'")
    error_message = "not delivered as source"
  }
  assert {
    condition     = length([for file in local.source_files : file if startswith(file, "target/") || startswith(file, "terraform/")]) == 0 && contains(local.source_files, "gateway/src/main.rs")
    error_message = "the bundle's files"
  }
  assert {
    condition     = length(aws_s3_object.program) == 0 && aws_s3_bucket_public_access_block.artifacts["artifacts"].restrict_public_buckets
    error_message = "the bucket"
  }
  assert {
    condition     = strcontains(local.files["/etc/bifrost/boot.env"].text, "BUNDLE_SHA256='${sha256(local.source_bundle)}'")
    error_message = "the bundle's digest"
  }
  assert {
    condition     = strcontains(local.files["/etc/bifrost/boot.env"].text, "RUSTUP_URL='${var.rustup_url}'")
    error_message = "where rustup is"
  }
}

run "binary" {
  command = apply
  variables {
    binary_directory = "./tests/local/programs"
  }

  assert {
    condition     = toset(keys(aws_s3_object.program)) == toset(["bifrost-gateway", "bifrost-monitor"]) && length(aws_s3_object.source) == 0
    error_message = "not the two programs"
  }
  assert {
    condition     = strcontains(local.files["/etc/bifrost/boot.env"].text, "GATEWAY_SHA256='${filesha256("./tests/local/programs/bifrost-gateway")}'") && strcontains(local.files["/etc/bifrost/boot.env"].text, "DELIVERY='binary'")
    error_message = "the program's digest"
  }
}

run "release" {
  command = apply
  variables {
    release = {
      url    = "https://example.com/bifrost.tar.gz"
      sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    }
  }

  assert {
    condition     = length(aws_s3_bucket.artifacts) == 0 && strcontains(local.files["/etc/bifrost/boot.env"].text, "RELEASE_URL='https://example.com/bifrost.tar.gz'")
    error_message = "a release needs no bucket"
  }
}

run "standard_credits" {
  command = plan
  variables {
    cpu_credits = "standard"
  }

  assert {
    condition     = aws_instance.gateway.credit_specification[0].cpu_credits == "standard" && aws_instance.gateway.tags["bifrost-credit-mode"] == "standard"
    error_message = "the mode, or the tag that tells it"
  }
  assert {
    condition     = aws_cloudwatch_metric_alarm.credits[0].threshold == 144 && !contains(keys(aws_cloudwatch_metric_alarm.instance), "surplus")
    error_message = "alarms of a standard instance"
  }
  assert {
    condition     = endswith(output.credit_runway, "then it slows down to its baseline")
    error_message = output.credit_runway
  }
}

run "large" {
  command = plan
  variables {
    instance_type = "t3.2xlarge"
  }

  assert {
    condition     = startswith(output.credit_runway, "earns 192 credits an hour up to 4608: for ever at 40 % CPU, 16 hours at 100 %")
    error_message = output.credit_runway
  }
}

run "no_credits" {
  command = plan
  variables {
    instance_type = "c7i-flex.large"
  }

  assert {
    condition     = length(aws_instance.gateway.credit_specification) == 0 && !contains(keys(coalesce(aws_instance.gateway.tags, {})), "bifrost-credit-mode")
    error_message = "credits of an instance that has none"
  }
  assert {
    condition     = toset(keys(aws_cloudwatch_metric_alarm.instance)) == toset(["reachable", "hardware", "network-in", "network-out"])
    error_message = "alarms on credits of an instance that has none"
  }
  assert {
    condition     = output.credit_runway == "no CPU credits are known of for c7i-flex.large"
    error_message = output.credit_runway
  }
}

run "open" {
  command = apply
  variables {
    subnet_id             = "subnet-0123456789abcdef0"
    allowed_cidr_blocks   = ["203.0.113.0/24", "2001:db8::/48"]
    client_keys_parameter = "/bifrost/clients"
    tls = {
      certificate_parameter = "/bifrost/certificate"
      key_parameter         = "/bifrost/key"
    }
  }

  assert {
    condition     = one(aws_security_group.gateway.ingress[*].from_port) == 8080 && one(aws_security_group.gateway.ingress[*].cidr_blocks) == tolist(["203.0.113.0/24"]) && one(aws_security_group.gateway.ingress[*].ipv6_cidr_blocks) == tolist(["2001:db8::/48"])
    error_message = "the open port"
  }
  assert {
    condition = jsondecode(aws_ssm_parameter.settings.value).settings.server == {
      listen = "[::]:8080"
      tls    = { certificate = "/run/bifrost-secrets/tls-certificate.pem", key = "/run/bifrost-secrets/tls-key.pem" }
    }
    error_message = "how the gateway listens"
  }
  assert {
    condition     = jsondecode(aws_ssm_parameter.settings.value).variables.BIFROST_CLIENT_KEYS == "/bifrost/clients"
    error_message = "client keys"
  }
  assert {
    condition     = output.endpoint == "https://${output.public_ip}:8080/v1"
    error_message = output.endpoint
  }
  assert {
    condition     = local.secret_names == toset(["/bifrost/openai", "/bifrost/clients", "/bifrost/certificate", "/bifrost/key"])
    error_message = "what the instance may read"
  }
}

run "open_to_ipv4" {
  command = plan
  variables {
    allowed_cidr_blocks   = ["203.0.113.0/24"]
    client_keys_parameter = "/bifrost/clients"
    tls = {
      certificate_parameter = "/bifrost/certificate"
      key_parameter         = "/bifrost/key"
    }
  }

  assert {
    condition     = jsondecode(aws_ssm_parameter.settings.value).settings.server.listen == "0.0.0.0:8080"
    error_message = "how the gateway listens"
  }
}

run "own_subnet_without_address" {
  command = plan
  variables {
    subnet_id      = "subnet-0123456789abcdef0"
    public_address = false
  }

  assert {
    condition     = length(aws_vpc.own) == 0 && length(aws_eip.gateway) == 0 && aws_instance.gateway.subnet_id == "subnet-0123456789abcdef0" && !aws_instance.gateway.associate_public_ip_address
    error_message = "the given subnet"
  }
  assert {
    condition     = aws_security_group.gateway.vpc_id == "vpc-0123456789abcdef0" && output.public_ip == null
    error_message = "the subnet's VPC"
  }
}

run "watched" {
  command = apply
  variables {
    threshold_alarms = true
    alarm_topic_arns = ["arn:aws:sns:us-east-1:123456789012:alarms"]
  }

  assert {
    condition     = { for name, alarm in aws_cloudwatch_metric_alarm.gateway : name => alarm.threshold } == { queue-wait = 75, load = 4000, memory = 75 }
    error_message = "the three thresholds of the page"
  }
  assert {
    condition     = alltrue([for alarm in aws_cloudwatch_metric_alarm.instance : contains(alarm.alarm_actions, "arn:aws:sns:us-east-1:123456789012:alarms")])
    error_message = "an alarm that nobody hears of"
  }
  assert {
    condition     = contains(aws_cloudwatch_metric_alarm.instance["hardware"].alarm_actions, "arn:aws:automate:us-east-1:ec2:recover")
    error_message = "failed hardware is not left"
  }
  assert {
    # The pictures of the gateway's own figures come last.
    condition = [for widget in jsondecode(aws_cloudwatch_dashboard.gateway.dashboard_body).widgets : one(widget.properties.annotations.horizontal[*].value)] == [
      20, null, null, 4000, 75, 75
    ]
    error_message = "limits in the pictures"
  }
  assert {
    condition     = jsondecode(aws_ssm_parameter.settings.value).publish
    error_message = "the timer is not started"
  }
}

run "settings" {
  command = plan
  variables {
    settings = {
      server    = { server_timing = true }
      providers = { local = { base_url = "http://10.0.0.5:11434/v1", keyless = true } }
    }
    secret_parameters = {}
    egress_ports      = [11434]
    port              = 9000
  }

  assert {
    condition     = jsondecode(aws_ssm_parameter.settings.value).settings.server == { listen = "127.0.0.1:9000", server_timing = true }
    error_message = "settings are not merged"
  }
  assert {
    condition     = toset(aws_security_group.gateway.egress[*].from_port) == toset([443, 11434])
    error_message = "the provider's port"
  }
}

run "newer_image" {
  command = plan
  variables {
    ami_id = "ami-0fedcba9876543210"
  }

  assert {
    condition     = aws_instance.gateway.ami == "ami-0123456789abcdef0"
    error_message = "a newer image alone must replace nothing"
  }
}

run "nobody_to_ask" {
  command = plan
  variables {
    secret_parameters = {}
  }

  expect_failures = [aws_ssm_parameter.settings]
}

# In bytes: 2,000 characters of two each.
run "more_than_a_parameter_holds" {
  command = plan
  variables {
    settings = { log = { level = join("", [for _ in range(1000) : "ää"]) } }
  }

  expect_failures = [aws_ssm_parameter.settings]
}

run "keys_that_are_only_named" {
  command = plan
  variables {
    settings = {
      client_keys = [{ name = "ci", value = "env.CI_KEY" }]
      admin       = { keys = "env.ADMIN_ONE, env.ADMIN_TWO" }
      providers = {
        a = { keys = "env.A,env.B", headers = { X-Team-Key = "env.TEAM", x-team = "ml" }, proxy = "env.PROXY" }
        b = { keys = ["env.A", { name = "b", value = "env.B" }, { value_file = "/run/bifrost-secrets/B" }] }
        c = { keys = { main = { value = "env.A", weight = 0.5 }, spare = "env.B" } }
        d = { keys = { value = "env.A", weight = 1 }, base_url = "https://example.com/v1" }
      }
    }
  }

  assert {
    condition     = length(jsondecode(aws_ssm_parameter.settings.value).settings.providers) == 4
    error_message = "names of secrets are refused"
  }
}
